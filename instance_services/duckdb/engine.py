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
from instance_services.duckdb.database import EngineLimits, is_alive
from instance_services.duckdb.recovery import open_recovered
from instance_services.duckdb.session import Failed, NotDurable, Session
from instance_services.duckdb.turns import QueryTurns
from instance_services.duckdb.watchdog import Watchdog

log = structlog.get_logger()

_INSIST_S = 0.2
_GUARD_S = 0.5
# An interrupt is heard between two chunks of rows; most are obeyed within this.
_HEARD_S = 1.0
# Less than the cell waits for its engines to end, together with what running requests are left.
_STOP_S = 3.0

_STOPPED = "the engine has stopped and is restarting; try again in a few seconds"
_LOST = (
    "the engine failed on this statement because of an internal error and is about to be"
    " restarted; committed data is kept"
)
_ENDED = "the credential that this request came with has ended; use the current one"
_UNHEEDED = (
    "a statement whose client has disconnected, or that filled the storage, cannot be interrupted;"
    " the engine is about to be restarted, committed data is kept; try again in a few seconds"
)

# After one of these the engine may refuse whatever comes next.
_SUSPICIOUS = (
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.IOException,
    duckdb.PermissionException,
)


class Overloaded(Exception):  # noqa: N818 - an answer to the client and not a fault
    """More requests wait than the queue holds."""


class Ended(Exception):  # noqa: N818 - an answer to the client and not a fault
    """The credential that a request came with is not valid any more."""


class Broken(Exception):  # noqa: N818 - a state of the engine
    """The engine answers nothing any more; only a restart of the process helps."""


class Job:
    """One request on its way to the engine and back."""

    __slots__ = (
        *("_engine", "abandoned", "allowed", "error", "finished", "future", "params", "result"),
        *("sql", "unheeded_s"),
    )

    def __init__(
        self, engine: "SerialExecutor", sql: str, params: list[Any], allowed: Callable[[], bool]
    ) -> None:
        self._engine = engine
        self.allowed = allowed
        self.sql = sql
        self.params = params
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.abandoned = False
        self.finished = False
        # For how long it has been interrupted again and again, in vain. Counted and not looked up
        # on a clock: that one goes on where the whole process is held still for a snapshot.
        self.unheeded_s = 0.0
        self.result: bytes | None = None
        self.error: Exception | None = None

    def perform(self) -> None:
        self._engine.perform(self)

    def settle(self) -> None:
        self._engine.settle(self)


class SerialExecutor:
    """Runs requests one at a time, in the order they came, in turns with the event loop.

    Its methods are called on the event loop of `turns`; `on_broken` is too, once, when the engine
    is lost.
    """

    def __init__(
        self,
        turns: QueryTurns,
        path: Path,
        temp_directory: Path,
        limits: EngineLimits,
        *,
        waiting_max: int = 256,
        interrupt_timeout_s: float = 10.0,
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        self.allowance = Allowance(path, temp_directory, limits.storage_bytes)
        self._turns = turns
        self._place = (path, temp_directory, limits)
        self._waiting_max = waiting_max
        self._interrupt_timeout_s = interrupt_timeout_s
        self._on_broken = on_broken
        self._lock = threading.Lock()
        self._running: Job | None = None
        self._jobs: set[Job] = set()
        self._broken = False
        self._why = _STOPPED
        self.queries = 0
        """Requests that were taken since the start, whatever became of them."""
        self._connection: Any = None
        self._session: Session | None = None
        self._watchdog = Watchdog(lambda: self.is_busy, threads=limits.threads)

    async def start(self) -> None:
        """Opens the database; raises what the engine says where it cannot."""
        self._connection = await self._turns.call(lambda: open_recovered(*self._place))
        self._session = Session(self._connection, self.allowance)

    @property
    def is_busy(self) -> bool:
        return bool(self._jobs)

    @property
    def is_alive(self) -> bool:
        return self._session is not None and not self._broken

    @property
    def running(self) -> Job | None:
        return self._running

    @property
    def trouble(self) -> str | None:
        """Why it takes no queries, or will not for long; None where it does."""
        if not self.is_alive:
            return self._why
        running = self._running
        if running is not None and running.unheeded_s >= _HEARD_S:
            return _UNHEEDED
        return None

    def submit(
        self, sql: str, params: list[Any], allowed: Callable[[], bool] = lambda: True
    ) -> Job:
        """Puts a request in the queue; its future gives the answer as JSON.

        It ends soon after its caller is `allowed` no more. Who was allowed when the head of the
        request came need not be when its body has: raises Ended then.
        """
        if not self.is_alive:
            raise Broken(self._why)
        if not allowed():
            raise Ended(_ENDED)
        waiting = len(self._jobs)
        if waiting >= self._waiting_max:
            raise Overloaded(f"{waiting} requests are already waiting; try again later")
        job = Job(self, sql, params, allowed)
        self._jobs.add(job)
        self.queries += 1
        self._turns.put(job)
        return job

    def abandon(self, job: Job) -> None:
        """Nobody waits for the answer any more: the request is not begun, or is interrupted."""
        job.abandoned = True
        if not job.finished:
            # An interrupt that comes between two statements is lost.
            self._insist(job, _INSIST_S)
            asyncio.get_running_loop().call_later(_INSIST_S, self.abandon, job)

    def watch(self, job: Job) -> None:
        """To be called for a request that takes long, which must not hold or fill the database."""
        self._watchdog.begin()
        self._guard(job)

    def _guard(self, job: Job) -> None:
        """Keeps a request from outliving its credential, and the files from outgrowing storage."""
        if job.finished or job.abandoned:
            return
        if not job.allowed():
            self._end_credentials()
            return
        if self._running is job and self._session is not None and self._session.overgrows():
            self._insist(job, _GUARD_S)
        asyncio.get_running_loop().call_later(_GUARD_S, self._guard, job)

    def _end_credentials(self) -> None:
        """Ends all requests whose credential has; the running one last, so that none follows it."""
        ended = [job for job in self._jobs if not job.allowed()]
        for job in sorted(ended, key=lambda each: each is self._running):
            if not job.future.done():
                job.future.set_exception(Ended(_ENDED))
            self.abandon(job)

    def _insist(self, job: Job, every_s: float) -> None:
        """Interrupts; what does not obey for long is ended with the process."""
        if self._running is not job or self._broken:
            return
        self._interrupt(job)
        job.unheeded_s += every_s
        if job.unheeded_s > self._interrupt_timeout_s:
            log.warning("a statement cannot be interrupted; the process is replaced")
            self._give_up()

    def _give_up(self) -> None:
        """Answers all that wait, and lets the process be replaced."""
        self._broken = True
        self._why = _UNHEEDED
        for job in self._jobs:
            if not job.future.done():
                job.future.set_exception(Broken(_UNHEEDED))
        asyncio.get_running_loop().call_soon(self._on_broken)

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
        insisted_s = 0.0
        while not closed.done():
            if self._running is not None:
                self._interrupt(self._running)
                insisted_s += _INSIST_S
            if _STOP_S < insisted_s <= _STOP_S + _INSIST_S:
                log.warning("a statement cannot be interrupted; the process exits")
                self._on_broken()
            await asyncio.wait([closed], timeout=_INSIST_S)
        self._watchdog.end()
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
        if isinstance(job.error, NotDurable):
            self._broken = True
            job.error = Broken(str(job.error))
        elif job.error is not None and self._is_lost(job.error.__cause__):
            self._broken = True
            job.error = Broken(_LOST)

    def settle(self, job: Job) -> None:
        """Answers a request that was run, or that no longer is to be."""
        self._jobs.discard(job)
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
