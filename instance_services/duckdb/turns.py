"""Owns turns: how the event loop and the work that would block it share one thread while they can.

Handing work to another thread and its result back costs two wake-ups across CPUs, which is as much
as a small query. So the thread that runs the loop stops it, does the work itself, and goes on with
the loop. A second thread looks from time to time: where work takes long, it takes the loop over,
and what takes long has become a thread beside the loop without ever having been handed over.
"""

import asyncio
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

import uvloop

T = TypeVar("T")

# Work that is seen at two looks in a row has taken at least one, and at most two of these.
LOOK_S = 0.005
# So many looks in vain, and the second thread sleeps until there is work again.
_LOOKS_IN_VAIN = 4
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class BlockingWork(Protocol):
    """What would block the loop."""

    def perform(self) -> None:
        """Called on some thread, one work at a time, with or without the loop going on meanwhile.

        It must not raise: that ends the run.
        """

    def settle(self) -> None:
        """Called after `perform`, on the loop or while it stands still: to settle futures."""


class FunctionWork(Generic[T]):
    """One function as work; its future gives what it returns or raises."""

    def __init__(self, function: Callable[[], T], future: asyncio.Future[T]) -> None:
        self._function = function
        self._future = future
        self._outcome: tuple[T] | Exception

    def perform(self) -> None:
        try:
            self._outcome = (self._function(),)
        except Exception as error:  # noqa: BLE001 - it is raised again where it is waited for
            self._outcome = error

    def settle(self) -> None:
        if self._future.done():
            return
        if isinstance(self._outcome, Exception):
            self._future.set_exception(self._outcome)
        else:
            self._future.set_result(self._outcome[0])


class QueryTurns:
    """Runs an event loop, and beside it work in the order in which it was put.

    Short work holds the loop up for twice LOOK_S at most; longer work does not. The loop moves
    between two threads, of which neither is the one that calls `run`: that one is free for signals,
    which else would not be heard while it does work.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # set by run
        self._main: asyncio.Task[Any] = None  # type: ignore[assignment]  # set by run
        # Whoever holds this runs the loop, or is about to.
        self._holding = threading.Lock()
        # Guards the next two, which the loop and a thread beside it share.
        self._lock = threading.Lock()
        self._waiting: deque[BlockingWork] = deque()
        self._is_busy = False
        # Whether the loop was stopped for work; of the thread that holds the loop.
        self._is_due = False
        # What is performed while nobody holds the loop, and how much of it there was.
        self._current: BlockingWork | None = None
        self._count = 0
        self._sleeps = False
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._failure: BaseException | None = None

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs the loop until `main` ends, and gives its result; to be called once.

        Work that is still being performed then is left behind, on a daemon's thread.
        """
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._loop = runner.get_loop()
        self._main = task = self._loop.create_task(main)
        task.add_done_callback(lambda _: self._loop.stop())
        self._holding.acquire()
        self._start_threads()
        self._ended.wait()
        if not self._loop.is_running():
            runner.close()
        if self._failure is not None:
            raise self._failure
        return task.result()

    def put(self, work: BlockingWork) -> None:
        """To be called on the loop."""
        with self._lock:
            self._waiting.append(work)
            if self._is_busy:
                return
            self._is_busy = True
        self._stop_for_work()

    async def call(self, function: Callable[[], T]) -> T:
        """What the function gives, performed as work."""
        future: asyncio.Future[T] = self._loop.create_future()
        self.put(FunctionWork(function, future))
        return await future

    def _start_threads(self) -> None:
        # The threads inherit the mask, and so do those that the engine starts from them: signals
        # go to a thread that is free to handle them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            for name, leads in (("turns-1", True), ("turns-2", False)):
                thread = threading.Thread(
                    target=self._take_part, args=(leads,), name=name, daemon=True
                )
                thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _take_part(self, leads: bool) -> None:
        try:
            while not self._ended.is_set():
                if leads:
                    self._lead()
                else:
                    self._stand_by()
                leads = not leads
        except BaseException as error:  # noqa: BLE001 - it is raised again in run()
            # Work that was left behind finds the loop closed.
            if not self._ended.is_set():
                self._failure = error
                self._end()

    def _end(self) -> None:
        self._ended.set()
        self._wake.set()

    def _lead(self) -> None:
        """Runs the loop and does its work, until the loop is taken over or all has ended."""
        while True:
            self._loop.run_forever()
            if self._main.done():
                self._end()
                return
            if not self._is_due:
                continue
            self._is_due = False
            if not self._take_turn():
                return

    def _take_turn(self) -> bool:
        """Does one work while the loop stands still; False where the loop was taken meanwhile."""
        work = self._next()
        if work is None:
            return True
        self._count += 1
        self._current = work
        if self._sleeps:
            self._wake.set()
        self._holding.release()
        work.perform()
        self._current = None
        if not self._holding.acquire(blocking=False):
            self._go_on_beside(work)
            return False
        work.settle()
        # One round of the loop between works: answers leave, and others arrive.
        with self._lock:
            self._is_busy = bool(self._waiting)
        if self._is_busy:
            self._stop_for_work()
        return True

    def _go_on_beside(self, work: BlockingWork | None) -> None:
        """Ends the work during which the loop was taken, and does what else waits."""
        while work is not None:
            self._loop.call_soon_threadsafe(work.settle)
            work = self._next()
            if work is not None:
                work.perform()

    def _next(self) -> BlockingWork | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._is_busy = False
            return None

    def _stop_for_work(self) -> None:
        self._is_due = True
        self._loop.stop()

    def _stand_by(self) -> None:
        """Waits until work takes long, and takes the loop over; or until all has ended."""
        seen: BlockingWork | None = None
        count = self._count
        in_vain = 0
        while not self._ended.is_set():
            time.sleep(LOOK_S)
            current = self._current
            # Should another work have come in between, the loop is taken early, and nothing else.
            if current is not None and current is seen and self._holding.acquire(blocking=False):
                return
            seen = current
            in_vain = in_vain + 1 if current is None and self._count == count else 0
            count = self._count
            if in_vain > _LOOKS_IN_VAIN:
                self._sleep(count)
                in_vain = 0

    def _sleep(self, count: int) -> None:
        # The other thread counts first and then looks whether this one sleeps; so one of the two
        # sees the other.
        self._sleeps = True
        if self._count == count:
            self._wake.wait()
        self._sleeps = False
        if not self._ended.is_set():
            self._wake.clear()
