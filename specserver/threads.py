"""Owns the bounded pool of threads that synchronous handlers run on."""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
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
        # Jobs waiting or running. More of them than threads means that one is missing.
        self._load = 0

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Runs the function on a thread, in the caller's context."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        job = _Job(function, arguments, contextvars.copy_context(), future, loop)
        with self._lock:
            if self._load - self._count >= self._waiting:
                raise Unavailable(
                    "too many requests are waiting", code="overloaded", headers={"Retry-After": "1"}
                )
            self._load += 1
            self._jobs.put(job)
            missing = self._load > self._count < self._limit
            self._count += missing
        if missing:
            threading.Thread(target=self._work, name="specserver", daemon=True).start()
        return await future

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_S)
            except queue.Empty:
                job = None
            if job is None:
                with self._lock:
                    if self._jobs.empty():
                        self._count -= 1
                        return
                continue
            settle = _perform(job)
            with self._lock:
                # Before the result is known, so that what follows it finds this thread free.
                self._load -= 1
            settle()
            del job, settle  # or the last request would be kept until the next one

    def stop(self) -> None:
        """Lets the threads end after the jobs that wait."""
        with self._lock:
            for _ in range(self._count):
                self._jobs.put(None)


def _perform(job: _Job) -> Callable[[], None]:
    """Runs the job; what it gives back makes the outcome known."""
    if job.future.cancelled():
        return lambda: None
    try:
        result = job.context.run(job.function, *job.arguments)
    except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
        return partial(_settle, job, job.future.set_exception, error)
    return partial(_settle, job, job.future.set_result, result)


def _settle(job: _Job, settle: Callable[[Any], None], outcome: Any) -> None:
    def on_loop() -> None:
        if not job.future.done():
            settle(outcome)

    # Where the loop is closed, nobody waits any more.
    with contextlib.suppress(RuntimeError):
        job.loop.call_soon_threadsafe(on_loop)
