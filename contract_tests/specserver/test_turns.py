"""Owns the proof that a shared pool serves every caller, however many requests one of them has."""

import asyncio
from typing import Any

import pytest

from contract_tests.specserver.calling import minimal, served
from specserver import PollAgain, TooManyRequests, Unavailable
from specserver.shares import Shares
from specserver.turns import Together, Turns


def test_one_caller_leaves_places_to_others() -> None:
    pool = Turns(8, 6)
    assert [pool.try_enter("crowd") for _ in range(10)].count(True) == 4
    assert [pool.try_enter(f"other {n}") for n in range(10)].count(True) == 4
    assert not pool.try_enter("late")
    pool.leave("crowd")
    assert not pool.try_enter("crowd")
    assert pool.try_enter("late")


def test_a_share_is_never_larger_than_told() -> None:
    pool = Turns(100, 3)
    assert [pool.try_enter("crowd") for _ in range(10)].count(True) == 3


def test_the_last_places_are_for_callers_that_have_none() -> None:
    pool = Turns(9, 3, reserved=3)
    takers = [pool.try_enter(f"crowd {n % 3}") for n in range(9)]
    assert takers.count(True) == 6
    assert [pool.try_enter(f"other {n}") for n in (1, 1, 2, 3, 4)] == [
        True,
        False,
        True,
        True,
        False,
    ]
    pool.leave("crowd 0")
    assert not pool.try_enter("crowd 0")
    assert not pool.try_enter("other 1")
    assert pool.try_enter("other 4")


def test_a_person_has_no_more_in_several_organizations_than_in_one() -> None:
    pool = Turns(24, 6)
    entered = [Together((f"org {n}", "person")) for n in range(7) for _ in range(6)]
    entered = [each for each in entered if pool.try_enter(each)]
    assert len(entered) == 6
    assert not pool.try_enter(Together(("org 0", "colleague")))
    assert pool.try_enter(Together(("org 1", "colleague")))
    for each in entered:
        pool.leave(each)
    assert [pool.try_enter(Together(("org 9", "person"))) for _ in range(7)].count(True) == 6


def test_those_who_wait_take_turns() -> None:
    async def run() -> list[str]:
        pool, order = Turns(1, 1, waiting_of_one=10), []
        await pool.enter("first")

        async def wait(caller: str) -> None:
            await pool.enter(caller)
            order.append(caller)
            pool.leave(caller)

        tasks = [asyncio.create_task(wait("crowd")) for _ in range(5)]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(wait("other")))
        await asyncio.sleep(0)
        pool.leave("first")
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(run())[:2] == ["crowd", "other"]


def test_too_many_of_one_are_refused_and_the_others_wait() -> None:
    async def run() -> None:
        pool = Turns(1, 1, waiting_of_one=2, waiting=4)
        await pool.enter("first")
        waiting = [asyncio.create_task(pool.enter("crowd")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests) as refused:
            await pool.enter("crowd")
        assert refused.value.headers["Retry-After"] == "1"
        waiting += [asyncio.create_task(pool.enter(f"other {n}")) for n in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await pool.enter("late")
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        pool.leave("first")
        assert pool.try_enter("late")

    asyncio.run(run())


def test_who_gives_up_at_its_turn_keeps_no_place() -> None:
    async def run() -> None:
        pool = Turns(1, 1, waiting_of_one=2)
        await pool.enter("first")
        waiting = asyncio.create_task(pool.enter("gone"))
        await asyncio.sleep(0)
        pool.leave("first")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert pool.try_enter("next")

    asyncio.run(run())


def by_name(exchange: Any) -> str:
    return str(exchange.request.headers.get("x-caller"))


async def ask(app: Any, caller: str, path: str = "/thing") -> tuple[int, dict[str, str]]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if sent or asked:
            await asyncio.Event().wait()
        asked.append(True)
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    asked: list[bool] = []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"x-caller", caller.encode())],
        "client": ("192.0.2.1", 1),
    }
    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers


def test_a_callers_slow_requests_leave_threads_to_others() -> None:
    async def run() -> None:
        free = asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(request: Any) -> dict[str, Any]:
            if request.headers.get("x-caller") == "crowd":
                asyncio.run_coroutine_threadsafe(free.wait(), loop).result(60)
            return {}

        app = served(
            minimal({"responses": {"200": {"description": "Done."}}}),
            slow,
            threads=4,
            shares=Shares(by_name, threads=4, waiting=8),
        )
        crowd = [asyncio.create_task(ask(app, "crowd")) for _ in range(20)]
        async with asyncio.timeout(60):
            assert [(await ask(app, "other"))[0] for _ in range(5)] == [200] * 5
            free.set()
            answers = await asyncio.gather(*crowd)
        statuses = [status for status, _ in answers]
        assert (statuses.count(200), statuses.count(429)) == (10, 10)
        assert all("retry-after" in headers for status, headers in answers if status == 429)

    asyncio.run(run())


def test_long_polls_of_a_caller_are_bounded() -> None:
    async def run() -> None:
        come: set[str] = set()

        def poll(request: Any) -> dict[str, Any]:
            if request.headers.get("x-caller") not in come:
                raise PollAgain(0.01)
            return {}

        app = served(
            minimal({"responses": {"200": {"description": "Done."}}}),
            poll,
            shares=Shares(by_name, threads=16, long_polls=3),
        )
        crowd = [asyncio.create_task(ask(app, "crowd")) for _ in range(9)]
        other = asyncio.create_task(ask(app, "other"))
        async with asyncio.timeout(60):
            refused = 0
            while refused < 6:
                await asyncio.sleep(0.01)
                refused = sum(task.done() for task in crowd)
            come.add("other")
            assert (await other)[0] == 200
            come.add("crowd")
            statuses = [status for status, _ in await asyncio.gather(*crowd)]
        assert (statuses.count(200), statuses.count(429)) == (3, 6)

    asyncio.run(run())
