"""Holds turns: order, a loop that goes on beside long work, and the races between the two."""

import asyncio
import contextvars
import functools
import random
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

import pytest

from instance_services.duckdb import turns as module
from instance_services.duckdb.turns import QueryTurns

PATIENCE_S = 90
_name: contextvars.ContextVar[str] = contextvars.ContextVar("name")


def _run(use: Callable[[QueryTurns], Any]) -> Any:
    turns = QueryTurns()
    return turns.run(asyncio.wait_for(use(turns), PATIENCE_S))


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks so often that the loop is taken over at any moment of any work."""
    monkeypatch.setattr(module, "LOOK_S", 0.0002)


def test_short_work_is_done_on_the_thread_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 60)

    async def use(turns: QueryTurns) -> None:
        for _ in range(100):
            assert await turns.call(threading.get_ident) == threading.get_ident()

    _run(use)


def _waits_for_the_loop(loop: asyncio.AbstractEventLoop) -> int:
    """Work that never ends unless the loop goes on beside it."""
    passed = threading.Event()
    loop.call_soon_threadsafe(passed.set)
    assert passed.wait(PATIENCE_S)
    return threading.get_ident()


@pytest.mark.parametrize("idle_s", [0, 0.2])
def test_the_loop_goes_on_beside_long_work(idle_s: float) -> None:
    async def use(turns: QueryTurns) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(5):
            await asyncio.sleep(idle_s)
            assert await turns.call(functools.partial(_waits_for_the_loop, loop)) > 0
            assert await turns.call(lambda: 1) == 1

    _run(use)


def test_work_that_comes_while_the_loop_is_beside_waits_its_turn() -> None:
    async def use(turns: QueryTurns) -> None:
        may_end, begun = threading.Event(), threading.Event()
        done: list[int] = []

        def long() -> None:
            begun.set()
            assert may_end.wait(PATIENCE_S)
            done.append(0)

        tasks = [asyncio.ensure_future(turns.call(long))]
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        tasks += [
            asyncio.ensure_future(turns.call(functools.partial(done.append, i)))
            for i in range(1, 5)
        ]
        await asyncio.sleep(0.05)
        assert done == []
        may_end.set()
        await asyncio.gather(*tasks)
        assert done == list(range(5))

    _run(use)


class Checked:
    """Work that checks its own surroundings."""

    performed: ClassVar[list[int]] = []
    at_once = threading.Lock()

    def __init__(self, number: int, takes_s: float, future: "asyncio.Future[int]") -> None:
        self.number = number
        self.takes_s = takes_s
        self.future = future

    def perform(self) -> None:
        assert self.at_once.acquire(blocking=False), "two at once"
        time.sleep(self.takes_s)
        self.performed.append(self.number)
        self.at_once.release()

    def settle(self) -> None:
        loop = self.future.get_loop()
        assert asyncio._get_running_loop() is (loop if loop.is_running() else None)
        if not self.future.done():
            self.future.set_result(self.number)


async def _counted(upto: int) -> AsyncIterator[int]:
    for number in range(upto):
        yield number
        await asyncio.sleep(0)


async def _asks(turns: QueryTurns, chance: random.Random, numbers: Any, count: int) -> int:
    """Puts work, some of which it no longer waits for; gives how often it got an answer."""
    answered = 0
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    name = str(id(task))
    _name.set(name)
    async for _ in _counted(count):
        takes_s = chance.choice([0, 0, 0, 0.0002, 0.0004, 0.0008, 0.003])
        work = Checked(next(numbers), takes_s, loop.create_future())
        turns.put(work)
        if chance.random() < 0.2:
            loop.call_later(chance.random() * 0.003, work.future.cancel)
        try:
            assert await work.future == work.number
            answered += 1
        except asyncio.CancelledError:
            assert work.future.cancelled()
        assert (asyncio.current_task(), _name.get()) == (task, name)
        if chance.random() < 0.1:
            await asyncio.sleep(chance.random() * 0.003)
    return answered


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("seed", range(4))
def test_random_work_is_done_in_order_and_one_at_a_time(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Checked, "performed", [])
    callers, each = 6, 120

    async def use(turns: QueryTurns) -> int:
        numbers = iter(range(callers * each))
        asking = [_asks(turns, random.Random(seed * 10 + i), numbers, each) for i in range(callers)]
        answered = await asyncio.gather(*asking)
        await turns.call(lambda: None)  # behind all that nobody waited for
        return sum(answered)

    assert _run(use) > callers * each / 2
    assert Checked.performed == list(range(callers * each))


@pytest.mark.usefixtures("often")
def test_threads_call_in_while_the_loop_moves() -> None:
    async def use(turns: QueryTurns) -> None:
        loop = asyncio.get_running_loop()
        heard: list[int] = []

        def shout() -> None:
            for i in range(500):
                loop.call_soon_threadsafe(heard.append, i)

        threads = [threading.Thread(target=shout) for _ in range(2)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            await turns.call(functools.partial(time.sleep, 0.0003))
        await asyncio.sleep(0)
        assert sorted(heard) == sorted([*range(500)] * 2)

    _run(use)


def test_what_work_raises_is_raised_where_it_is_waited_for() -> None:
    async def use(turns: QueryTurns) -> None:
        with pytest.raises(ZeroDivisionError):
            await turns.call(lambda: 1 // 0)
        assert await turns.call(lambda: 2) == 2

    _run(use)


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_what_ends_the_run_is_raised_from_it(error: type[BaseException]) -> None:
    async def fail(_: QueryTurns) -> None:
        raise error

    with pytest.raises(error):
        _run(fail)


@pytest.mark.parametrize("takes_s", [0, 0.1])
def test_work_that_breaks_its_word_ends_the_run(takes_s: float) -> None:
    class Breaking:
        def perform(self) -> None:
            time.sleep(takes_s)
            raise LookupError

        def settle(self) -> None:
            raise AssertionError

    async def use(turns: QueryTurns) -> None:
        turns.put(Breaking())
        await asyncio.sleep(PATIENCE_S)

    with pytest.raises(LookupError):
        _run(use)


def test_work_without_an_end_does_not_hold_up_the_end_of_the_run() -> None:
    may_end = threading.Event()

    async def use(turns: QueryTurns) -> int:
        turns.put(module.FunctionWork(may_end.wait, asyncio.get_running_loop().create_future()))
        await asyncio.sleep(0.05)
        return 7

    assert _run(use) == 7
    may_end.set()


class Contested:
    """The lock of the loop, so slow for one of the two threads that the other one is first."""

    def __init__(self, lock: Any, *, taker_is_slow: bool) -> None:
        self._lock = lock
        self._taker_is_slow = taker_is_slow
        self.may_end = threading.Event()
        self.contested = threading.Event()
        self.worker: int | None = None
        self.contests = 0

    def acquire(self, *, blocking: bool = True) -> bool:
        is_worker = threading.get_ident() == self.worker
        if not is_worker:
            self.contested.clear()
            self.may_end.set()
        if is_worker != self._taker_is_slow:
            end = time.monotonic() + PATIENCE_S
            while not self._lock.locked():
                assert time.monotonic() < end
                time.sleep(0.0001)
        got = bool(self._lock.acquire(blocking=blocking))
        if not is_worker:
            self.contests += 1
            self.contested.set()
        return got

    def release(self) -> None:
        # Before the real release, so that whoever gets the lock next finds these two in order.
        self.worker = threading.get_ident()
        self.may_end.clear()
        self._lock.release()


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("taker_is_slow", [True, False])
def test_work_that_ends_in_the_moment_of_the_taking(*, taker_is_slow: bool) -> None:
    async def use(turns: QueryTurns) -> None:
        lock = Contested(turns._holding, taker_is_slow=taker_is_slow)

        def perform() -> int:
            assert lock.may_end.wait(PATIENCE_S)
            return 7

        turns._holding = lock  # type: ignore[assignment]  # as slow as this test needs it
        for _ in range(20):
            assert await turns.call(perform) == 7
            assert await asyncio.to_thread(lock.contested.wait, PATIENCE_S)
        assert lock.contests >= 20

    _run(use)
