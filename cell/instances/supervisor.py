"""Keeps engines as their records want them: starts, adopts, restarts, and puts to sleep."""

import asyncio
import signal
import time
from collections.abc import Coroutine
from typing import Any

import structlog

from cell.access.credentials import Credential, Credentials
from cell.certificates.domains import Domains
from cell.certificates.pki import PkiError
from cell.engines.driver import Driver, EngineError, Login, NewLoginError, RefusesWrites
from cell.instances import activity, background, bounds, ceilings, liveness, starting
from cell.instances import statement_counts as counts
from cell.instances.activity import Traffic
from cell.instances.beginnings import Beginnings
from cell.instances.copy_slots import CopySlot
from cell.instances.hosted import ROUTED, HostedInstance
from cell.instances.measuring import Measuring
from cell.instances.overlaps import Overlaps
from cell.instances.pools import Pools
from cell.instances.records import Records
from cell.instances.route_file import RouteFile
from cell.instances.start_slots import StartSlot
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
        routes: RouteFile,
        domains: Domains,
        beginnings: Beginnings,
    ) -> None:
        self._settings = settings
        self._layout = layout
        self.host = host
        self._records = records
        self._credentials = credentials
        self._routes = routes
        self.domains = domains
        self.beginnings = beginnings
        self.pools = Pools()
        self.instances: dict[str, HostedInstance] = {}
        self.traffic: dict[str, Traffic] = {}
        self._stopping = False
        self.overlaps = Overlaps(credentials, self.hand_out_credentials)
        self._tasks: set[asyncio.Task[None]] = set()
        self._measuring = Measuring(self.spawn, self._end_full)

    def publish(self) -> None:
        """Tells the gateway how things are now."""
        self._routes.write(self.instances.values())

    async def certify_domains(self) -> None:
        """Certificates for the custom domains of all instances, and no others."""
        instances = [each for each in self.instances.values() if each.record.desired in ROUTED]
        await self.domains.ensure(
            {host: each.record.tenant for each in instances for host in each.record.spec.domains}
        )

    async def drop_domains(self, instance: HostedInstance) -> None:
        """Once it is not routed any more; what is in the way of that must not keep the instance."""
        if instance.record.spec.domains:
            await self.drop_certificates(instance)

    async def drop_certificates(self, instance: HostedInstance) -> None:
        """Those of domains that no instance has any more."""
        try:
            await self.certify_domains()
        except (PkiError, OSError) as error:
            # Tried again each hour.
            reason = str(error)
            log.warning("cell.domains_kept", instance_id=instance.instance_id, reason=reason)

    def save(self, instance: HostedInstance) -> None:
        self._records.save(instance.record)
        self.publish()

    def login(self, instance: HostedInstance) -> Login:
        newest = self._credentials.valid(instance.instance_id)[0]
        return login_of(instance.driver, newest)

    async def hand_out_credentials(self, instance: HostedInstance) -> None:
        """Makes what is valid now what the engine accepts."""
        valid = self._credentials.valid(instance.instance_id)
        logins = [login_of(instance.driver, each) for each in valid]
        try:
            if instance.usable and logins:
                await self._try_newest(instance, logins)
            await liveness.set_credentials(instance, logins)
        finally:
            # Known to the gateway before anybody has the credential.
            if await asyncio.to_thread(instance.read_proofs):
                self.publish()

    async def _try_newest(self, instance: HostedInstance, logins: list[Login]) -> None:
        """Before an older one ends, lest nobody can get in; NewLoginError, and it stays then."""
        ended = self._credentials.ended(instance.instance_id)
        driver, site = instance.driver, instance.site
        if not ended or await driver.ready(site, logins[0]):
            return
        former = [login_of(driver, each) for each in ended]
        await liveness.set_credentials(instance, [*logins, *former])
        # Where the engine takes neither it is busy, which must not keep the former alive.
        if not await driver.ready(site, logins[0]) and await driver.ready(site, former[0]):
            raise NewLoginError(
                "the engine does not accept the new login; the previous one stays valid"
            )

    async def bring_up(self, instance: HostedInstance) -> None:
        """In its tenant's turn; raises EngineError or OSError."""
        self.beginnings.check(instance)
        with instance.at_work("started"):
            if self.beginnings.is_owed(instance):
                instance.site.make(self.host.owner(instance.site))
                turn = CopySlot(self.pools.copies, self.host, instance)
                limits = await self.beginnings.limits(instance)
                async with (
                    bounds.in_turn(instance, turn),
                    bounds.bounded(self.host, instance, "begun", *limits),
                ):
                    await self.beginnings.begin(instance)
            slot = StartSlot(self.pools, self.host, instance)
            async with bounds.in_turn(instance, slot):
                await self.prepare(instance)
                await asyncio.to_thread(instance.site.empty_run)
                await self._check_storage(instance)
                await self.start(instance, slot)

    async def _check_storage(self, instance: HostedInstance) -> None:
        try:
            await asyncio.to_thread(ceilings.check, instance)
        except ceilings.FullError as error:
            if not await asyncio.to_thread(ceilings.lend, instance, error.used_bytes):
                raise
            # Without the rights to write, where a server has them from a file.
            await self.hand_out_credentials(instance)

    async def prepare(self, instance: HostedInstance) -> None:
        """Whatever an engine needs before it starts; what is there already stays."""
        instance.site.make(self.host.owner(instance.site))
        if not self._credentials.valid(instance.instance_id):
            self._credentials.make(instance.instance_id, 0)
        await self.hand_out_credentials(instance)
        await instance.driver.provision(instance.site, instance.record.spec)

    async def start(self, instance: HostedInstance, slot: StartSlot) -> None:
        """Returns when a login works; raises EngineError, and leaves nothing running then."""
        await starting.sparing(instance, lambda one, once_more: self._start(one, slot, once_more))

    async def _start(self, instance: HostedInstance, slot: StartSlot, once_more: bool) -> None:
        started = time.monotonic()
        spec = instance.record.spec
        kills = self.host.memory_kills(instance.site)
        process = await starting.launched(instance, spec)
        instance.engine_started(process)
        slot.limit_cpu()
        self.host.headroom.give(process.group, spec.size.memory_bytes)
        try:
            await self._until_usable(instance, process, slot, once_more)
        except EngineError as error:
            instance.engine_ended()
            await instance.driver.stop(instance.site, process, self._settings.stop_timeout_s)
            if self.host.memory_kills(instance.site) > kills:
                raise EngineError(starting.OUT_OF_MEMORY) from error
            raise
        self._usable(instance, process)
        elapsed_s = round(time.monotonic() - started, 3)
        log.info("cell.usable", instance_id=instance.instance_id, elapsed_s=elapsed_s)

    async def stop(self, instance: HostedInstance) -> None:
        """Ends the engine, and does not take that for a crash."""
        process = instance.engine_ended()
        if process is not None:
            # Ending, too, has work to do, and a small share of a CPU would draw it out.
            self.host.limit_cpu(process, None)
            await instance.driver.stop(instance.site, process, self._settings.stop_timeout_s)
            log.info("cell.engine_stopped", instance_id=instance.instance_id)
        await asyncio.to_thread(self.host.forget, instance.site)

    async def adopt(self, instance: HostedInstance) -> bool:
        """Takes over an engine that outlived an earlier cell; False where none answers."""
        process = self.host.find(instance.site)
        if process is None:
            return False
        process.resume()
        instance.engine_started(process)
        try:
            await starting.until_loaded(instance, process, self._settings.load_timeout_s)
            # The former cell may have died between making a credential and handing it out.
            await self.hand_out_credentials(instance)
            await self._until_usable(instance, process, None, once_more=False)
        except (EngineError, OSError):
            await self.stop(instance)
            return False
        self._usable(instance, process)
        log.info("cell.adopted", instance_id=instance.instance_id, pid=process.pid)
        return True

    async def _until_usable(
        self, instance: HostedInstance, process: Process, slot: StartSlot | None, once_more: bool
    ) -> None:
        login = self.login(instance)
        await starting.until_usable(instance, process, login, self._settings, slot)
        await starting.limit(self.host, instance, process, once_more=once_more)

    def watch(self, instance: HostedInstance, process: Process) -> None:
        instance.watch = self.spawn(self._watch(instance, process))

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
            running = [each for each in self.instances.values() if each.process is not None]
            await asyncio.gather(*map(self.stop, running), return_exceptions=True)

    async def tick(self) -> None:
        """What is due now and then: idle instances, ended overlaps, figures."""
        self.traffic = activity.read(self._layout.activity)
        for instance in list(self.instances.values()):
            if self._is_idle(instance) and not instance.lock.locked():
                self.spawn(self._sleep(instance))
            background.flush(instance, self.spawn)
            if liveness.is_due(instance, self._settings):
                login = self.login(instance)
                instance.look = self.spawn(liveness.check(instance, login, self._settings))
            traffic = self.traffic_of(instance)
            if counts.is_due(instance, traffic):
                instance.counting = self.spawn(
                    counts.count(instance, self.login(instance), traffic)
                )
        for instance_id in self.overlaps.due():
            # Apart: an engine that does not answer holds up no other, nor the cell's start.
            self.spawn(self.overlaps.end(instance_id, self.instances.get(instance_id)))
        await self._measuring.look(list(self.instances.values()))
        for instance in list(self.instances.values()):
            background.hold_writes(instance, self.spawn)

    def _end_full(self, instance: HostedInstance, process: Process, used_bytes: int) -> None:
        """What works on it must not let it grow on: there it ends as a crashed one does."""
        reason = ceilings.past(instance, used_bytes)
        # It may have been given more since, or be another engine.
        if reason is None or instance.process is not process:
            return
        log.warning("cell.storage_exceeded", instance_id=instance.instance_id, reason=reason)
        if not instance.lock.locked():
            self.spawn(self._stop_full(instance, process, used_bytes))
        else:
            instance.expect_end(reason)
            process.signal(signal.SIGKILL)

    async def _stop_full(self, instance: HostedInstance, process: Process, used_bytes: int) -> None:
        async with instance.lock:
            reason = ceilings.past(instance, used_bytes)
            if reason is None or instance.process is not process:
                return
            await self.stop(instance)
            self.publish()
        # What was temporary is gone now, and it may run again.
        await self.restart(instance, reason)

    def traffic_of(self, instance: HostedInstance) -> Traffic:
        return self.traffic.get(instance.instance_id, Traffic())

    def _usable(self, instance: HostedInstance, process: Process) -> None:
        instance.unwell_since, instance.looked_at = None, time.monotonic()
        instance.touch()
        instance.became_usable(self.host.memory_kills(instance.site))
        self.publish()
        self.watch(instance, process)

    async def _watch(self, instance: HostedInstance, process: Process) -> None:
        await background.until_ended(instance, process, self.spawn)
        async with instance.lock:
            if instance.process is not process or self._stopping:
                return
            reason = instance.why_ended(process, self.host.memory_kills(instance.site))
            instance.engine_ended()
            self.publish()
        if time.time() - process.started_at > self._settings.healthy_after_s:
            instance.was_healthy()
        log.warning("cell.engine_ended", instance_id=instance.instance_id, reason=reason)
        await self.restart(instance, reason)

    async def restart(self, instance: HostedInstance, reason: str) -> None:
        """Until it runs again, or somebody wants it otherwise; called without the lock."""
        while True:
            wait_s = self._count_failure(instance, reason)
            await asyncio.sleep(wait_s)
            async with instance.lock:
                if instance.record.desired != "running" or instance.process is not None:
                    return
                await asyncio.to_thread(self.host.forget, instance.site)
                try:
                    await self.bring_up(instance)
                except ceilings.FullError as error:
                    instance.start_failed(str(error))
                    self.publish()
                    self.start_full_later(instance, str(error))
                    return
                except (EngineError, OSError) as error:
                    reason = str(error)
                    continue
                instance.restarted(instance.reason or reason)
                self._tell(instance)
                return

    def start_full_later(self, instance: HostedInstance, reason: str) -> None:
        """After a rest, for its owner to remove data."""
        former = instance.full_again
        if isinstance(instance.driver, RefusesWrites) and (former is None or former.done()):
            instance.full_again = self.spawn(self._start_full(instance, reason))

    async def _start_full(self, instance: HostedInstance, reason: str) -> None:
        await asyncio.sleep(ceilings.LENT_S + 1.0)
        instance.full_again = None
        if instance.failed and instance.process is None and instance.record.desired == "running":
            await self.restart(instance, reason)

    def _tell(self, instance: HostedInstance) -> None:
        """Its owner, by the status and the log, why it was away for a moment."""
        line = f"{moment(time.time())} menagerie: {instance.reason}"
        log_files.write(instance.site.log, line)
        self.publish()

    def _count_failure(self, instance: HostedInstance, reason: str) -> float:
        """Notes it, and answers how long to wait before the next attempt."""
        settings = self._settings
        instance.restarting(reason, settings.failures_max)
        if instance.failures >= settings.failures_max:
            log.error("cell.failed", instance_id=instance.instance_id, reason=reason)
            self.publish()
        return settings.restart_wait_s(instance.failures)

    def _is_idle(self, instance: HostedInstance) -> bool:
        limit_s = instance.record.spec.idle_pause_s
        if limit_s is None or instance.status != "running":
            return False
        traffic = self.traffic_of(instance)
        last = max(traffic.last_activity_at or 0.0, instance.awake_since)
        return traffic.connections == 0 and time.time() - last > limit_s

    async def _sleep(self, instance: HostedInstance) -> None:
        """The gateway is told first, so that no connection finds its engine ending."""
        async with instance.lock:
            if not self._is_idle(instance):
                return
            instance.begin_sleep()
            self.publish()
            try:
                await asyncio.sleep(SETTLE_S)
                self.traffic = activity.read(self._layout.activity)
                if self._is_idle(instance):
                    instance.fall_asleep()
                    self._records.save(instance.record)
                    await self.stop(instance)
                    log.info("cell.idle_paused", instance_id=instance.instance_id)
            finally:
                instance.end_sleep()
                self.publish()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("cell.task_failed", reason=repr(error))


def login_of(driver: Driver, credential: Credential) -> Login:
    return Login(driver.username(credential.generation), credential.password)
