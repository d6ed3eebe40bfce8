"""Owns the engine's thread: the queue of requests in front of it, interruption, and its end."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import structlog

from instance_services.duckdb.allowance import Allowance
from instance_services.duckdb.database import Limits, is_alive, open_database
from instance_services.duckdb.session import Failed, Session

log = structlog.get_logger()

_INSIST_S = 0.2
_GUARD_S = 0.5

# After one of these the engine may refuse whatever comes next.
_SUSPICIOUS = (
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.IOException,
    duckdb.PermissionException,
)


class Overloaded(Exception):  # noqa: N818 - an answer to the client and not a fault
    """More requests wait than the queue holds."""


class Broken(Exception):  # noqa: N818 - a state of the engine
    """The engine answers nothing any more; only a restart of the process helps."""


class Job:
    """One request on its way to the engine and back."""

    __slots__ = ("abandoned", "error", "finished", "future", "params", "result", "sql")

    def __init__(self, sql: str, params: list[Any], future: "asyncio.Future[bytes]") -> None:
        self.sql = sql
        self.params = params
        self.future = future
        self.abandoned = False
        self.finished = False
        self.result: bytes | None = None
        self.error: Exception | None = None


class Engine:
    """Runs requests one at a time, in the order they came, on a thread of its own.

    Its methods are called on the event loop; `on_broken` is too, once, when the engine is lost.
    """

    def __init__(
        self,
        path: Path,
        temp_directory: Path,
        limits: Limits,
        *,
        waiting_max: int = 256,
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        self.allowance = Allowance(path, temp_directory, limits.storage_bytes)
        self._place = (path, temp_directory, limits)
        self._waiting_max = waiting_max
        self._on_broken = on_broken
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: Job | None = None
        self._waiting = 0
        self._broken = False
        self._connection: Any = None
        self._session: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Opens the database; raises what the engine says where it cannot."""
        self._loop = asyncio.get_running_loop()
        opened = self._loop.create_future()
        self._thread = threading.Thread(
            target=self._work, args=(opened,), name="engine", daemon=True
        )
        self._thread.start()
        await opened

    @property
    def is_busy(self) -> bool:
        return self._waiting > 0

    @property
    def is_alive(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive() and not self._broken

    @property
    def running(self) -> Job | None:
        return self._running

    def submit(self, sql: str, params: list[Any]) -> Job:
        """Puts a request in the queue; its future gives the answer as JSON."""
        if not self.is_alive:
            raise Broken("the engine has stopped and is about to be restarted")
        if self._waiting >= self._waiting_max:
            raise Overloaded(f"{self._waiting} requests are waiting already; try again later")
        assert self._loop is not None
        job = Job(sql, params, self._loop.create_future())
        self._waiting += 1
        self._jobs.put(job)
        return job

    def abandon(self, job: Job) -> None:
        """Nobody waits for the answer any more: the request is not begun, or is interrupted."""
        job.abandoned = True
        self._interrupt(job)
        if not job.finished and self._loop is not None:
            # An interrupt that comes between two statements is lost.
            self._loop.call_later(_INSIST_S, self.abandon, job)

    def guard(self, job: Job) -> None:
        """Keeps a request that takes long from growing the database beyond its storage."""
        if job.finished or self.allowance.storage_bytes is None or self._loop is None:
            return
        if self._session is not None and self._session.growing and self.allowance.exceeded():
            self._interrupt(job)
        self._loop.call_later(_GUARD_S, self.guard, job)

    def _interrupt(self, job: Job) -> None:
        with self._lock:
            if self._running is job:
                self._connection.interrupt()

    async def stop(self) -> None:
        """Drops what waits, interrupts what runs, writes a checkpoint and closes."""
        thread = self._thread
        if thread is None:
            return
        self._broken = True
        self._jobs.put(None)
        while thread.is_alive():
            running = self._running
            if running is not None:
                self._interrupt(running)
            await asyncio.to_thread(thread.join, _INSIST_S)

    def _work(self, opened: "asyncio.Future[None]") -> None:
        assert self._loop is not None
        try:
            self._connection = open_database(*self._place)
        except Exception as error:  # noqa: BLE001 - it is raised again in start()
            self._loop.call_soon_threadsafe(opened.set_exception, error)
            return
        self._session = Session(self._connection, self.allowance)
        self._loop.call_soon_threadsafe(opened.set_result, None)
        while (job := self._jobs.get()) is not None:
            self._perform(self._session, job)
            self._loop.call_soon_threadsafe(self._settle, job)
            del job  # or the last request's text would be kept until the next one
        self._close()

    def _perform(self, session: Session, job: Job) -> None:
        with self._lock:
            if job.abandoned or self._broken:
                return
            self._running = job
        try:
            job.result = session.answer(job.sql, job.params)
        except Failed as error:
            job.error = error
        with self._lock:
            self._running = None
        if job.error is not None and self._is_lost(job.error.__cause__):
            self._lose(job)

    def _lose(self, job: Job) -> None:
        self._broken = True
        job.error = Broken(f"the engine is lost and about to be restarted: {job.error}")
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._on_broken)

    def _settle(self, job: Job) -> None:
        self._waiting -= 1
        job.finished = True
        future = job.future
        if future.done():
            return
        if job.error is not None:
            future.set_exception(job.error)
        elif job.result is not None:
            future.set_result(job.result)
        else:
            future.set_exception(Broken("the engine is stopping"))

    def _is_lost(self, cause: BaseException | None) -> bool:
        return isinstance(cause, _SUSPICIOUS) and not is_alive(self._connection)

    def _close(self) -> None:
        with contextlib.suppress(duckdb.Error):
            self._connection.execute("CHECKPOINT")
        self._connection.close()
        log.info("database closed")
