"""The console as its pages ask for it: on threads, while the cell lives on its event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog

from cell.access import network
from cell.console import tables
from cell.console.place import Place
from cell.console.runs import Run
from cell.console.sessions import Session, Sessions
from cell.console.table import Limits
from cell.console.worker import DIALECTS
from cell.instances import pools
from cell.instances.lifecycle import Lifecycle
from cell.instances.residents import Resident
from cell.instances.state import GONE
from cell.instances.supervisor import Supervisor
from pages.console import About, Refused, Visit
from specserver import NotFound, Problem
from specserver.turns import Together

log = structlog.get_logger("cell.console")

# Others than DuckDB that speak HTTP understand no SQL over it, or another kind.
HTTPS_ENGINES = ("duckdb",)

Found = TypeVar("Found")


def has_console(engine: str, protocol: str) -> bool:
    return protocol in DIALECTS and (protocol != "https" or engine in HTTPS_ENGINES)


class Desk:
    """What is asked from a thread is done on the loop. `limits` are those of each run."""

    def __init__(
        self,
        sessions: Sessions,
        lifecycle: Lifecycle,
        supervisor: Supervisor,
        limits: Limits | None = None,
    ) -> None:
        self.sessions = sessions
        self._lifecycle = lifecycle
        self._login = supervisor.login
        self._groups = supervisor.host.groups_of_console
        self._places = supervisor.pools.runs
        self._limits = limits or Limits()
        # By session and what is run for it, each with its instance.
        self._runs: dict[str, tuple[str, Run]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """On the loop the cell lives on."""
        self._loop = asyncio.get_running_loop()

    def end_all(self, instance_id: str) -> None:
        """Whoever has a console of the instance has none from now on, nor what it still runs."""
        self.sessions.end_all(instance_id)
        for run_of, run in self._runs.values():
            if run_of == instance_id:
                run.stop()

    def holders(self) -> set[tuple[str, str]]:
        """Each instance, and who has its console open."""
        return self.sessions.holders()

    def end_of(self, instance_id: str, holder: str) -> None:
        """Whoever began it may not any more; what still runs for it stops."""
        ended = self.sessions.end_of(instance_id, holder)
        for key, (_, run) in self._runs.items():
            if key.partition(" ")[0] in ended:
                run.stop()

    # What pages ask, on their threads.

    def about(self, visit: Visit) -> About | None:
        return self._on_loop(lambda: self._about(visit))

    def run(self, visit: Visit, sql: str) -> dict[str, Any]:
        return self._on_loop(lambda: self._run(visit, sql))

    def tables(self, visit: Visit) -> dict[str, Any]:
        return self._on_loop(lambda: self._tables(visit))

    def stop(self, visit: Visit) -> None:
        self._on_loop(lambda: self._stop(visit))

    def sign_out(self, visit: Visit) -> None:
        self._on_loop(lambda: self._sign_out(visit))

    def _on_loop(self, work: Callable[[], Awaitable[Found]]) -> Found:
        if self._loop is None:
            raise Refused(503, "The cell is starting; try again in a moment.")

        async def awaited() -> Found:
            return await work()

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()

    # The same, on the loop.

    async def _about(self, visit: Visit) -> About | None:
        found = self._find(visit)
        if found is None:
            return None
        session, resident = found
        spec = resident.record.spec
        return About(session.name or visit.instance_id, spec.engine, spec.engine_version, spec.host)

    async def _run(self, visit: Visit, sql: str) -> dict[str, Any]:
        session, resident = self._found(visit)
        answer = await self._answer(session, resident, session.key, sql, self._limits)
        failed = "error" in answer
        log.info("cell.console_ran", instance_id=resident.instance_id, failed=failed)
        return answer

    async def _tables(self, visit: Visit) -> dict[str, Any]:
        session, resident = self._found(visit)
        protocol = resident.driver.protocol
        # Beside a statement of the session, which it neither waits for nor keeps from running.
        key = f"{session.key} tables"
        sql = tables.STATEMENTS[protocol]
        answer = await self._answer(session, resident, key, sql, tables.LIMITS)
        return tables.listed(answer, protocol)

    async def _answer(
        self, session: Session, resident: Resident, key: str, sql: str, limits: Limits
    ) -> dict[str, Any]:
        if key in self._runs:
            raise Refused(409, "A statement is already running in this session.")
        taker = pools.taker(resident.record.tenant, session.person)
        if not self._places.try_enter(taker):
            text = "Too many statements are running in your or your organization's consoles"
            raise Refused(503, f"{text}, or on this cell; try again in a moment.")
        instance_id = resident.instance_id
        try:
            run = Run(self._place(resident), limits, self._groups())
            self._runs[key] = instance_id, run
            resident.touch(for_s=limits.seconds)
            # One that sleeps wakes, as it does when somebody connects.
            await self._lifecycle.wake(instance_id)
            return await run.answer(sql)
        except Problem as problem:
            raise Refused(problem.status, problem.detail) from problem
        finally:
            self._runs.pop(key, None)
            self._places.leave(taker)
            resident.touch()

    async def _stop(self, visit: Visit) -> None:
        found = self._find(visit)
        running = self._runs.get(found[0].key) if found else None
        if running is not None:
            running[1].stop()

    async def _sign_out(self, visit: Visit) -> None:
        found = self._find(visit)
        if found is not None:
            await self._stop(visit)
            self.sessions.end(found[0].key)

    def whose(self, visit: Visit) -> Together | None:
        """Of whose share an answer is; on the loop."""
        try:
            found = self._find(visit)
        except Refused:
            return None
        return pools.taker(found[1].record.tenant, found[0].person) if found else None

    def _found(self, visit: Visit) -> tuple[Session, Resident]:
        found = self._find(visit)
        if found is None:
            raise Refused(401, "This session has ended.")
        return found

    def _find(self, visit: Visit) -> tuple[Session, Resident] | None:
        """The session; whatever is asked comes by here, and so is held to the network first.

        An address that is off the list keeps no session alive.
        """
        try:
            resident = self._lifecycle.find(visit.instance_id)
            if resident.record.desired in GONE:
                return None
            network.check_console(resident.record.spec, visit.address)
        except NotFound:
            return None
        except Problem as problem:
            raise Refused(problem.status, problem.detail) from problem
        session = self.sessions.find(visit.instance_id, visit.secret)
        return None if session is None else (session, resident)

    def _place(self, resident: Resident) -> Place:
        login, driver = self._login(resident), resident.driver
        socket = str(driver.socket(resident.site))
        return Place(driver.protocol, socket, login.username, login.password)
