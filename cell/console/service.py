"""The console as its pages ask for it: on threads, while the cell lives on its event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog

from cell.access import network
from cell.console import tables
from cell.console.runs import Run
from cell.console.sessions import ConsoleSession, ConsoleSessions
from cell.console.table import RunLimits
from cell.console.target import Target
from cell.console.worker import DIALECTS
from cell.instances import pools
from cell.instances.hosted import HostedInstance
from cell.instances.lifecycle import Lifecycle
from cell.instances.state import GONE
from cell.instances.supervisor import Supervisor
from pages.console import About, ConsoleCaller, Refused
from specserver import NotFound, Problem
from specserver.turns import Together

log = structlog.get_logger("cell.console")

# Others than DuckDB that speak HTTP understand no SQL over it, or another kind.
HTTPS_ENGINES = ("duckdb",)

Found = TypeVar("Found")


def has_console(engine: str, protocol: str) -> bool:
    return protocol in DIALECTS and (protocol != "https" or engine in HTTPS_ENGINES)


class ConsoleService:
    """What is asked from a thread is done on the loop. `limits` are those of each run."""

    def __init__(
        self,
        sessions: ConsoleSessions,
        lifecycle: Lifecycle,
        supervisor: Supervisor,
        limits: RunLimits | None = None,
    ) -> None:
        self.sessions = sessions
        self._lifecycle = lifecycle
        self._login = supervisor.login
        self._groups = supervisor.host.groups_of_console
        self._turns = supervisor.pools.runs
        self._limits = limits or RunLimits()
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

    def about(self, caller: ConsoleCaller) -> About | None:
        return self._on_loop(lambda: self._about(caller))

    def run(self, caller: ConsoleCaller, sql: str) -> dict[str, Any]:
        return self._on_loop(lambda: self._run(caller, sql))

    def tables(self, caller: ConsoleCaller) -> dict[str, Any]:
        return self._on_loop(lambda: self._tables(caller))

    def stop(self, caller: ConsoleCaller) -> None:
        self._on_loop(lambda: self._stop(caller))

    def sign_out(self, caller: ConsoleCaller) -> None:
        self._on_loop(lambda: self._sign_out(caller))

    def _on_loop(self, work: Callable[[], Awaitable[Found]]) -> Found:
        if self._loop is None:
            raise Refused(503, "The cell is starting; try again in a moment.")

        async def awaited() -> Found:
            return await work()

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()

    # The same, on the loop.

    async def _about(self, caller: ConsoleCaller) -> About | None:
        found = self._find(caller)
        if found is None:
            return None
        session, instance = found
        spec = instance.record.spec
        return About(
            session.name or caller.instance_id, spec.engine, spec.engine_version, spec.host
        )

    async def _run(self, caller: ConsoleCaller, sql: str) -> dict[str, Any]:
        session, instance = self._found(caller)
        answer = await self._answer(session, instance, session.key, sql, self._limits)
        failed = "error" in answer
        log.info("cell.console_ran", instance_id=instance.instance_id, failed=failed)
        return answer

    async def _tables(self, caller: ConsoleCaller) -> dict[str, Any]:
        session, instance = self._found(caller)
        protocol = instance.driver.protocol
        # Beside a statement of the session, which it neither waits for nor keeps from running.
        key = f"{session.key} tables"
        sql = tables.STATEMENTS[protocol]
        answer = await self._answer(session, instance, key, sql, tables.LIMITS)
        return tables.listed(answer, protocol)

    async def _answer(
        self,
        session: ConsoleSession,
        instance: HostedInstance,
        key: str,
        sql: str,
        limits: RunLimits,
    ) -> dict[str, Any]:
        if key in self._runs:
            raise Refused(409, "A statement is already running in this session.")
        share = pools.share_of(instance.record.tenant, session.person)
        if not self._turns.try_enter(share):
            text = "Too many statements are running in your or your organization's consoles"
            raise Refused(503, f"{text}, or on this cell; try again in a moment.")
        instance_id = instance.instance_id
        try:
            run = Run(self._target(instance), limits, self._groups())
            self._runs[key] = instance_id, run
            instance.touch(for_s=limits.seconds)
            # One that sleeps wakes, as it does when somebody connects.
            await self._lifecycle.wake(instance_id)
            return await run.answer(sql)
        except Problem as problem:
            raise Refused(problem.status, problem.detail) from problem
        finally:
            self._runs.pop(key, None)
            self._turns.leave(share)
            instance.touch()

    async def _stop(self, caller: ConsoleCaller) -> None:
        found = self._find(caller)
        running = self._runs.get(found[0].key) if found else None
        if running is not None:
            running[1].stop()

    async def _sign_out(self, caller: ConsoleCaller) -> None:
        found = self._find(caller)
        if found is not None:
            await self._stop(caller)
            self.sessions.end(found[0].key)

    def whose(self, caller: ConsoleCaller) -> Together | None:
        """Of whose share an answer is; on the loop."""
        try:
            found = self._find(caller)
        except Refused:
            return None
        return pools.share_of(found[1].record.tenant, found[0].person) if found else None

    def _found(self, caller: ConsoleCaller) -> tuple[ConsoleSession, HostedInstance]:
        found = self._find(caller)
        if found is None:
            raise Refused(401, "This session has ended.")
        return found

    def _find(self, caller: ConsoleCaller) -> tuple[ConsoleSession, HostedInstance] | None:
        """The session; whatever is asked comes by here, and so is held to the network first.

        An address that is off the list keeps no session alive.
        """
        try:
            instance = self._lifecycle.find(caller.instance_id)
            if instance.record.desired in GONE:
                return None
            network.check_reach(instance.record.spec, caller.address, "the console")
            session = self.sessions.find(caller.instance_id, caller.secret)
        except NotFound:
            return None
        except Problem as problem:
            raise Refused(problem.status, problem.detail) from problem
        return None if session is None else (session, instance)

    def _target(self, instance: HostedInstance) -> Target:
        login, driver = self._login(instance), instance.driver
        socket = str(driver.socket(instance.site))
        return Target(driver.protocol, socket, login.username, login.password)
