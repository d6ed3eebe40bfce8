"""Owns the proof that the thread pool is bounded, orderly and lets go."""

import asyncio
import contextvars
import threading

import pytest

from specserver import Unavailable
from specserver.threads import Threads

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME")


def test_results_errors_and_context_come_through() -> None:
    async def run() -> str:
        pool = Threads(2)
        NAME.set("caller")
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 / 0)
        return str(await pool.run(NAME.get))

    assert asyncio.run(run()) == "caller"


def test_no_more_threads_than_the_limit() -> None:
    at_once, most = 0, 0
    lock = threading.Lock()
    gate = threading.Barrier(4)

    def work() -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        gate.wait(60)
        with lock:
            at_once -= 1

    async def run() -> None:
        pool = Threads(4)
        await asyncio.gather(*[pool.run(work) for _ in range(40)])

    # The barrier opens only if four run at once; that a fifth never joins them is the limit.
    asyncio.run(run())
    assert most == 4


def test_one_idle_thread_is_used_again() -> None:
    async def run() -> set[int | None]:
        pool = Threads(8)
        return {await pool.run(threading.get_ident) for _ in range(50)}

    assert len(asyncio.run(run())) == 1


def test_too_many_waiting_are_turned_away() -> None:
    gate, started = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        gate.wait(60)

    async def run() -> None:
        pool = Threads(1, waiting=2)
        tasks = [asyncio.ensure_future(pool.run(block))]
        await asyncio.to_thread(started.wait, 60)
        tasks += [asyncio.ensure_future(pool.run(block)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable) as caught:
            await pool.run(block)
        assert caught.value.headers == {"Retry-After": "1"}
        gate.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_what_nobody_waits_for_is_not_begun() -> None:
    gate, started = threading.Event(), threading.Event()
    ran: list[str] = []

    def block() -> None:
        started.set()
        gate.wait(60)

    async def run() -> None:
        pool = Threads(1)
        first = asyncio.ensure_future(pool.run(block))
        await asyncio.to_thread(started.wait, 60)
        second = asyncio.ensure_future(pool.run(ran.append, "second"))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        gate.set()
        await first
        await pool.run(ran.append, "third")

    asyncio.run(run())
    assert ran == ["third"]


def test_stopping_finishes_what_was_begun_and_ends_the_threads() -> None:
    async def run() -> threading.Thread:
        pool = Threads(1)
        thread = await pool.run(threading.current_thread)
        pool.stop()
        return thread  # type: ignore[no-any-return]

    thread = asyncio.run(run())
    thread.join(60)
    assert not thread.is_alive()
