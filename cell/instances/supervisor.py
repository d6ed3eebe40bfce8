"""Keeps engines as their records want them: starts, adopts, restarts, and puts to sleep."""

import asyncio
import signal
import time
from collections.abc import Coroutine, Iterable
from typing import Any

import structlog

from cell.access.credentials import Credential, Credentials
from cell.certificates.domains import Domains
from cell.certificates.pki import PkiError
from cell.engines.driver import Driver, EngineError, Login, NewLoginError
from cell.instances import activity, background, bounds, ceilings, liveness, snapshots, starting
from cell.instances.activity import Traffic
from cell.instances.overlaps import Overlaps
from cell.instances.pools import Pools
from cell.instances.records import Records
from cell.instances.residents import ROUTED, Resident, Routes
from cell.instances.start_slots import StartPlace
from cell.layout import Layout
from cell.runtime import log_files
from cell.runtime.host import Host
from cell.runtime.process import Process
from cell.settings import CellSettings
from cell.timestamps import moment

log = structlog.get_logger("cell.supervisor")

# The gateway reads routes every 200 ms and tells of a first connection as quickly.
SETTLE_S = 0.6


class Supervisor:
    """Every method that changes an instance is called with the instance's lock held."""

    def __init__(
        self,
        settings: CellSettings,
        layout: Layout,
        host: Host,
        records: Records,
        credentials: Credentials,
        routes: Routes,
        domains: Domains,
    ) -> None:
        self._settings = settings
        self._layout = layout
        self.host = host
        self._records = records
        self._credentials = credentials
        self._routes = routes
        self.domains = domains
        self.pools = Pools()
        self.residents: dict[str, Resident] = {}
        self.traffic: dict[str, Traffic] = {}
        self._stopping = False
        self.overlaps = Overlaps(credentials, self.hand_out_credentials)
        self._tasks: set[asyncio.Task[None]] = set()

    def publish(self) -> None:
        """Tells the gateway how things are now."""
        self._routes.write(self.residents.values())

    async def certify_domains(self) -> None:
        """Certificates for the custom domains of all instances, and no others."""
        residents = [each for each in self.residents.values() if each.record.desired in ROUTED]
        await self.domains.ensure(host for each in residents for host in each.record.spec.domains)

    async def drop_domains(self, resident: Resident) -> None:
        """Once it is not routed any more; what is in the way of that must not keep the instance."""
        if not resident.record.spec.domains:
            return
        try:
            await self.certify_domains()
        except (PkiError, OSError) as error:
            # Tried again each hour.
            reason = str(error)
            log.warning("cell.domains_kept", instance_id=resident.instance_id, reason=reason)

    def save(self, resident: Resident) -> None:
        self._records.save(resident.record)
        self.publish()

    def login(self, resident: Resident) -> Login:
        newest = self._credentials.valid(resident.instance_id)[0]
        return login_of(resident.driver, newest)

    async def hand_out_credentials(self, resident: Resident) -> None:
        """Makes what is valid now what the engine accepts."""
        valid = self._credentials.valid(resident.instance_id)
        logins = [login_of(resident.driver, each) for each in valid]
        try:
            if resident.usable and logins:
                await self._try_newest(resident, logins)
            await liveness.tell(resident, logins)
        finally:
            # Known to the gateway before anybody has the credential.
            if await asyncio.to_thread(resident.read_proofs):
                self.publish()

    async def _try_newest(self, resident: Resident, logins: list[Login]) -> None:
        """Before an older one ends, lest nobody can get in; NewLoginError, and it stays then."""
        ended = self._credentials.ended(resident.instance_id)
        driver, site = resident.driver, resident.site
        if not ended or await driver.ready(site, logins[0]):
            return
        former = [login_of(driver, each) for each in ended]
        await liveness.tell(resident, [*logins, *former])
        # Where the engine takes neither it is busy, which must not keep the former alive.
        if not await driver.ready(site, logins[0]) and await driver.ready(site, former[0]):
            raise NewLoginError(
                "the engine does not accept the new login; the previous one stays valid"
            )

    async def bring_up(self, resident: Resident) -> None:
        """In its tenant's turn; raises EngineError or OSError."""
        with resident.at_work("started"):
            if snapshots.is_owed(resident):
                resident.site.make(self.host.owner(resident.site))
                turn = self.pools.snapshots.turn(resident.record.tenant)
                limits = (resident.record.spec.size.ceiling_bytes, self._settings.upgrade_timeout_s)
                async with (
                    bounds.in_turn(resident, turn),
                    bounds.bounded(self.host, resident, "begun", *limits),
                ):
                    await snapshots.begin(resident, self._layout)
            place = StartPlace(self.pools, self.host, resident)
            async with bounds.in_turn(resident, place):
                await self.prepare(resident)
                await asyncio.to_thread(ceilings.check, resident)
                await self.start(resident, place)

    async def prepare(self, resident: Resident) -> None:
        """Whatever an engine needs before it starts; what is there already stays."""
        resident.site.make(self.host.owner(resident.site))
        if not self._credentials.valid(resident.instance_id):
            self._credentials.make(resident.instance_id, 0)
        await self.hand_out_credentials(resident)
        await resident.driver.provision(resident.site, resident.record.spec)

    async def start(self, resident: Resident, place: StartPlace) -> None:
        """Returns when a login works; raises EngineError, and leaves nothing running then."""
        await starting.sparing(resident, lambda one: self._start(one, place))

    async def _start(self, resident: Resident, place: StartPlace) -> None:
        started = time.monotonic()
        spec = resident.record.spec
        kills = self.host.memory_kills(resident.site)
        try:
            process = await resident.driver.start(resident.site, spec)
        except OSError as error:
            raise EngineError(f"the engine cannot be started: {error}") from error
        resident.engine_started(process)
        place.limit_cpu()
        self.host.headroom.give(process.group, spec.size.memory_bytes)
        try:
            await self._until_usable(resident, process, place)
        except EngineError as error:
            resident.engine_ended()
            await resident.driver.stop(resident.site, process, self._settings.stop_timeout_s)
            if self.host.memory_kills(resident.site) > kills:
                raise EngineError(starting.OUT_OF_MEMORY) from error
            raise
        self._usable(resident, process)
        elapsed_s = round(time.monotonic() - started, 3)
        log.info("cell.usable", instance_id=resident.instance_id, elapsed_s=elapsed_s)

    async def stop(self, resident: Resident) -> None:
        """Ends the engine, and does not take that for a crash."""
        process = resident.engine_ended()
        if process is not None:
            # Ending, too, has work to do, and a small share of a CPU would draw it out.
            self.host.limit_cpu(process, None)
            await resident.driver.stop(resident.site, process, self._settings.stop_timeout_s)
            log.info("cell.engine_stopped", instance_id=resident.instance_id)
        await asyncio.to_thread(self.host.forget, resident.site)

    async def adopt(self, resident: Resident) -> bool:
        """Takes over an engine that outlived an earlier cell; False where none answers."""
        process = self.host.find(resident.site)
        if process is None:
            return False
        process.resume()
        resident.engine_started(process)
        try:
            await starting.until_loaded(resident, process, self._settings.load_timeout_s)
            # The former cell may have died between making a credential and handing it out.
            await self.hand_out_credentials(resident)
            await self._until_usable(resident, process)
        except (EngineError, OSError):
            await self.stop(resident)
            return False
        self._usable(resident, process)
        log.info("cell.adopted", instance_id=resident.instance_id, pid=process.pid)
        return True

    async def _until_usable(
        self, resident: Resident, process: Process, place: StartPlace | None = None
    ) -> None:
        login = self.login(resident)
        await starting.until_usable(resident, process, login, self._settings, place)
        await starting.limit(self.host, resident, process)

    def watch(self, resident: Resident, process: Process) -> None:
        resident.watch = self.spawn(self._watch(resident, process))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that is not lost, and whose failure is said."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self, *, stop_engines: bool) -> None:
        self._stopping = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if stop_engines:
            # One that does not stop must not keep the others from it.
            running = [each for each in self.residents.values() if each.process is not None]
            await asyncio.gather(*map(self.stop, running), return_exceptions=True)

    async def tick(self) -> None:
        """What is due now and then: idle instances, ended overlaps, figures."""
        self.traffic = activity.read(self._layout.activity)
        for resident in list(self.residents.values()):
            if self._is_idle(resident) and not resident.lock.locked():
                self.spawn(self._sleep(resident))
            background.flush(resident, self.spawn)
            if liveness.is_due(resident, self._settings):
                login = self.login(resident)
                resident.look = self.spawn(liveness.look(resident, login, self._settings))
        for instance_id in self.overlaps.due():
            # Apart: an engine that does not answer holds up no other, nor the cell's start.
            self.spawn(self.overlaps.end(instance_id, self.residents.get(instance_id)))
        full = await asyncio.to_thread(self._measure, list(self.residents.values()))
        for instance_id, reason in full.items():
            self._end_full(self.residents[instance_id], reason)

    def _end_full(self, resident: Resident, reason: str) -> None:
        """What works on it must not let it grow on: there it ends as a crashed one does."""
        log.warning("cell.storage_exceeded", instance_id=resident.instance_id, reason=reason)
        if not resident.lock.locked():
            self.spawn(self._stop_full(resident, reason))
        elif resident.process is not None:
            resident.expect_end(reason)
            resident.process.signal(signal.SIGKILL)

    async def _stop_full(self, resident: Resident, reason: str) -> None:
        async with resident.lock:
            if resident.process is None or ceilings.excess(resident) is None:
                return
            await self.stop(resident)
            self.publish()
        # What was temporary is gone now, and it may run again.
        await self.restart(resident, reason)

    def traffic_of(self, resident: Resident) -> Traffic:
        return self.traffic.get(resident.instance_id, Traffic())

    def _measure(self, residents: Iterable[Resident]) -> dict[str, str]:
        """Answers which are past their storage, and what their owners are told."""
        full = {}
        for resident in residents:
            if resident.record.desired != "erased":
                self.measure(resident)
                if (told := ceilings.excess(resident)) is not None:
                    full[resident.instance_id] = told
        return full

    @staticmethod
    def measure(resident: Resident) -> None:
        resident.metrics = resident.driver.metrics(resident.site, resident.process)

    def _usable(self, resident: Resident, process: Process) -> None:
        resident.unwell_since, resident.looked_at = None, time.monotonic()
        resident.touch()
        resident.became_usable(self.host.memory_kills(resident.site))
        self.publish()
        self.watch(resident, process)

    async def _watch(self, resident: Resident, process: Process) -> None:
        await background.until_ended(resident, process, self.spawn)
        async with resident.lock:
            if resident.process is not process or self._stopping:
                return
            reason = resident.why_ended(process, self.host.memory_kills(resident.site))
            resident.engine_ended()
            self.publish()
        if time.time() - process.started_at > self._settings.healthy_after_s:
            resident.was_healthy()
        log.warning("cell.engine_ended", instance_id=resident.instance_id, reason=reason)
        await self.restart(resident, reason)

    async def restart(self, resident: Resident, reason: str) -> None:
        """Until it runs again, or somebody wants it otherwise; called without the lock."""
        while True:
            wait_s = self._count_failure(resident, reason)
            await asyncio.sleep(wait_s)
            async with resident.lock:
                if resident.record.desired != "running" or resident.process is not None:
                    return
                await asyncio.to_thread(self.host.forget, resident.site)
                try:
                    await self.bring_up(resident)
                except ceilings.FullError as error:
                    resident.start_failed(str(error))
                    self.publish()
                    return
                except (EngineError, OSError) as error:
                    reason = str(error)
                    continue
                resident.restarted(resident.reason or reason)
                self._tell(resident)
                return

    def _tell(self, resident: Resident) -> None:
        """Its owner, by the status and the log, why it was away for a moment."""
        line = f"{moment(time.time())} menagerie: {resident.reason}"
        log_files.write(resident.site.log, line)
        self.publish()

    def _count_failure(self, resident: Resident, reason: str) -> float:
        """Notes it, and answers how long to wait before the next attempt."""
        settings = self._settings
        resident.restarting(reason, settings.failures_max)
        if resident.failures >= settings.failures_max:
            log.error("cell.failed", instance_id=resident.instance_id, reason=reason)
            self.publish()
        return settings.restart_wait_s(resident.failures)

    def _is_idle(self, resident: Resident) -> bool:
        limit_s = resident.record.spec.idle_pause_s
        if limit_s is None or resident.status != "running":
            return False
        traffic = self.traffic_of(resident)
        last = max(traffic.last_activity_at or 0.0, resident.awake_since)
        return traffic.connections == 0 and time.time() - last > limit_s

    async def _sleep(self, resident: Resident) -> None:
        """The gateway is told first, so that no connection finds its engine ending."""
        async with resident.lock:
            if not self._is_idle(resident):
                return
            resident.begin_sleep()
            self.publish()
            try:
                await asyncio.sleep(SETTLE_S)
                self.traffic = activity.read(self._layout.activity)
                if self._is_idle(resident):
                    resident.fall_asleep()
                    self._records.save(resident.record)
                    await self.stop(resident)
                    log.info("cell.idle_paused", instance_id=resident.instance_id)
            finally:
                resident.end_sleep()
                self.publish()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("cell.task_failed", reason=repr(error))


def login_of(driver: Driver, credential: Credential) -> Login:
    return Login(driver.username(credential.generation), credential.password)
