"""Owns the bounded pool of threads that synchronous handlers run on."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from specserver.problems import Unavailable

_IDLE_S = 30.0


class _Job(NamedTuple):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    context: contextvars.Context
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


class Threads:
    """Threads are started when needed and end when idle; beyond `waiting` jobs, 503 is raised.

    `concurrent.futures` would do, at three locks and two futures a call.
    """

    def __init__(self, limit: int, waiting: int = 1024) -> None:
        self._limit = limit
        self._waiting = waiting
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._idle = 0

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Runs the function on a thread, in the caller's context."""
        if self._jobs.qsize() >= self._waiting:
            raise Unavailable(
                "too many requests are waiting", code="overloaded", headers={"Retry-After": "1"}
            )
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._jobs.put(_Job(function, arguments, contextvars.copy_context(), future, loop))
        if self._idle < self._jobs.qsize() and self._count < self._limit:
            self._start()
        return await future

    def _start(self) -> None:
        with self._lock:
            if self._count >= self._limit:
                return
            self._count += 1
        threading.Thread(target=self._work, name="specserver", daemon=True).start()

    def _work(self) -> None:
        while True:
            self._idle += 1
            try:
                job = self._jobs.get(timeout=_IDLE_S)
            except queue.Empty:
                job = None
            self._idle -= 1
            if job is None:
                break
            _perform(job)
            del job  # or the last request would be kept until the next one
        with self._lock:
            self._count -= 1

    def stop(self) -> None:
        """Lets the threads end after the jobs that wait."""
        with self._lock:
            for _ in range(self._count):
                self._jobs.put(None)


def _perform(job: _Job) -> None:
    if job.future.cancelled():
        return
    try:
        result = job.context.run(job.function, *job.arguments)
    except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
        _settle(job, job.future.set_exception, error)
    else:
        _settle(job, job.future.set_result, result)


def _settle(job: _Job, settle: Callable[[Any], None], outcome: Any) -> None:
    def on_loop() -> None:
        if not job.future.done():
            settle(outcome)

    try:
        job.loop.call_soon_threadsafe(on_loop)
    except RuntimeError:
        # The loop is closed; nobody waits any more.
        return
