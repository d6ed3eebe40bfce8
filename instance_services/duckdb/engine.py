"""Owns the engine in use: the requests in front of it, interruption, and its end."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import structlog

from instance_services.duckdb.allowance import Allowance
from instance_services.duckdb.database import Limits, is_alive, open_database
from instance_services.duckdb.session import Failed, Session
from instance_services.duckdb.turns import Turns

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

    __slots__ = ("_engine", "abandoned", "error", "finished", "future", "params", "result", "sql")

    def __init__(self, engine: "Engine", sql: str, params: list[Any]) -> None:
        self._engine = engine
        self.sql = sql
        self.params = params
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.abandoned = False
        self.finished = False
        self.result: bytes | None = None
        self.error: Exception | None = None

    def perform(self) -> None:
        self._engine.perform(self)

    def settle(self) -> None:
        self._engine.settle(self)


class Engine:
    """Runs requests one at a time, in the order they came, in turns with the event loop.

    Its methods are called on the event loop of `turns`; `on_broken` is too, once, when the engine
    is lost.
    """

    def __init__(
        self,
        turns: Turns,
        path: Path,
        temp_directory: Path,
        limits: Limits,
        *,
        waiting_max: int = 256,
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        self.allowance = Allowance(path, temp_directory, limits.storage_bytes)
        self._turns = turns
        self._place = (path, temp_directory, limits)
        self._waiting_max = waiting_max
        self._on_broken = on_broken
        self._lock = threading.Lock()
        self._running: Job | None = None
        self._waiting = 0
        self._broken = False
        self._connection: Any = None
        self._session: Session | None = None

    async def start(self) -> None:
        """Opens the database; raises what the engine says where it cannot."""
        self._connection = await self._turns.call(lambda: open_database(*self._place))
        self._session = Session(self._connection, self.allowance)

    @property
    def is_busy(self) -> bool:
        return self._waiting > 0

    @property
    def is_alive(self) -> bool:
        return self._session is not None and not self._broken

    @property
    def running(self) -> Job | None:
        return self._running

    def submit(self, sql: str, params: list[Any]) -> Job:
        """Puts a request in the queue; its future gives the answer as JSON."""
        if not self.is_alive:
            raise Broken("the engine has stopped and is about to be restarted")
        if self._waiting >= self._waiting_max:
            raise Overloaded(f"{self._waiting} requests are waiting already; try again later")
        job = Job(self, sql, params)
        self._waiting += 1
        self._turns.put(job)
        return job

    def abandon(self, job: Job) -> None:
        """Nobody waits for the answer any more: the request is not begun, or is interrupted."""
        job.abandoned = True
        self._interrupt(job)
        if not job.finished:
            # An interrupt that comes between two statements is lost.
            asyncio.get_running_loop().call_later(_INSIST_S, self.abandon, job)

    def guard(self, job: Job) -> None:
        """Keeps a request that takes long from growing the database beyond its storage."""
        if job.finished or self.allowance.storage_bytes is None:
            return
        if self._session is not None and self._session.growing and self.allowance.exceeded():
            self._interrupt(job)
        asyncio.get_running_loop().call_later(_GUARD_S, self.guard, job)

    def _interrupt(self, job: Job) -> None:
        with self._lock:
            if self._running is job:
                self._connection.interrupt()

    async def stop(self) -> None:
        """Drops what waits, interrupts what runs, writes a checkpoint and closes."""
        if self._session is None:
            return
        self._broken = True
        self._session = None
        closed = asyncio.ensure_future(self._turns.call(self._close))
        while not closed.done():
            if self._running is not None:
                self._interrupt(self._running)
            await asyncio.wait([closed], timeout=_INSIST_S)
        await closed

    def perform(self, job: Job) -> None:
        """Runs a request, on whatever thread has the turn."""
        session = self._session
        with self._lock:
            if job.abandoned or self._broken or session is None:
                return
            self._running = job
        try:
            job.result = session.answer(job.sql, job.params)
        except Failed as error:
            job.error = error
        with self._lock:
            self._running = None
        if job.error is not None and self._is_lost(job.error.__cause__):
            self._broken = True
            job.error = Broken(f"the engine is lost and about to be restarted: {job.error}")

    def settle(self, job: Job) -> None:
        """Answers a request that was run, or that no longer is to be."""
        self._waiting -= 1
        job.finished = True
        future = job.future
        if isinstance(job.error, Broken):
            future.get_loop().call_soon(self._on_broken)
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
