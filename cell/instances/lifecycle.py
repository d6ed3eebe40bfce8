"""What is asked of an instance: made, paused, resumed, resized, copied, deleted, erased, woken."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import structlog

from cell.access.credentials import Credential, Credentials
from cell.engines import FoundEngines
from cell.engines.driver import EndsSessions, EngineError, FinalError
from cell.instances import bounds, login_turns, snapshots
from cell.instances.ceilings import FullError
from cell.instances.copy_slots import CopySlot, locked_in_turn
from cell.instances.hosted import ROUTED, HostedInstance
from cell.instances.reasons import for_owner
from cell.instances.records import Records
from cell.instances.state import ERASED
from cell.instances.supervisor import Supervisor, login_of
from cell.instances.told_networks import ToldNetworks
from cell.instances.uids import NoUidError
from cell.layout import Layout
from cell.runtime import engine_files
from cell.runtime.process import Process
from cell.settings import CellSettings
from cell.specification import Size, Spec
from cell.timestamps import moment
from specserver import Conflict, Invalid, NotFound, Unavailable

log = structlog.get_logger("cell.lifecycle")

UPGRADE = "upgraded"
RETRY_AFTER = {"Retry-After": "1"}


@asynccontextmanager
async def _waiting(instance: HostedInstance) -> AsyncIterator[None]:
    """For the place of an upgrade; Conflict where the instance is deleted meanwhile."""
    try:
        async with bounds.until_deleted(instance):
            yield
    except EngineError as error:
        raise Conflict(f"the upgrade was not started: {for_owner(str(error))}") from error


class Lifecycle:
    """Each method returns when what it did is so; asked twice, it does nothing the second time."""

    def __init__(
        self,
        settings: CellSettings,
        layout: Layout,
        engines: FoundEngines,
        records: Records,
        credentials: Credentials,
        supervisor: Supervisor,
    ) -> None:
        self._settings = settings
        self._layout = layout
        self._drivers = engines.drivers
        self._refused = engines.refused
        self._records = records
        self._credentials = credentials
        self._supervisor = supervisor
        self.networks = ToldNetworks(settings, supervisor)

    def find(self, instance_id: str) -> HostedInstance:
        found = self._supervisor.instances.get(instance_id)
        if found is None:
            raise NotFound("the cell has no such instance")
        return found

    def _free(self, instance_id: str) -> HostedInstance:
        """Raises Unavailable while it is upgraded, which nobody should wait for unheard."""
        instance = self.find(instance_id)
        if instance.work == UPGRADE:
            detail = "the instance is being upgraded; try again when that is done"
            raise Unavailable(detail, headers=RETRY_AFTER)
        return instance

    def observation(self, instance: HostedInstance) -> dict[str, Any]:
        seen = instance.observation(
            self._settings.ports[instance.driver.protocol],
            self._supervisor.traffic_of(instance),
            self._credentials.generation(instance.instance_id),
        )
        routed = instance.record.desired in ROUTED
        domains = instance.record.spec.domains if routed else ()
        return {**seen, "domains": self._supervisor.domains.told(domains)}

    def told_erased(self, instances: Iterable[HostedInstance]) -> None:
        """The control plane hears of these; what it does not know as erased it asks for again."""
        for instance in instances:
            if instance.record.desired == "erased" and instance.told_erased_at is None:
                instance.told_erased_at = time.monotonic()

    def forget_erased(self) -> None:
        """Those that the control plane has been told of for long enough, and that left nothing."""
        told_before = time.monotonic() - self._settings.erased_told_s
        for instance in list(self._supervisor.instances.values()):
            told_at = instance.told_erased_at
            if told_at is not None and told_at < told_before and self._left_nothing(instance):
                self._records.forget(instance.record)
                del self._supervisor.instances[instance.instance_id]
                log.info("cell.erased_forgotten", instance_id=instance.instance_id)

    def _left_nothing(self, instance: HostedInstance) -> bool:
        """Otherwise an erasure is under way, or failed and will be asked for again."""
        folders = (instance.site.directory, instance.site.run.outside)
        return not (
            instance.lock.locked()
            or self.has_credentials(instance)
            or instance.has_backup_key
            or any(folder.exists() for folder in folders)
        )

    async def put(self, instance_id: str, spec: Spec) -> HostedInstance:
        """Makes the instance, or brings the one there is to what is wanted now."""
        self.networks.check(spec)
        instance = self._find_or_make(instance_id, spec)
        slot = CopySlot(self._supervisor.pools.upgrades, self._supervisor.host, instance)
        locked: AbstractAsyncContextManager[None] = instance.lock
        if instance.record.spec.engine_version != spec.engine_version:
            locked = locked_in_turn(instance, slot, partial(_waiting, instance))
        with self.networks.told(instance, spec) as domains:
            async with locked:
                await self._put(instance, spec, domains, slot)
        return instance

    async def _put(
        self, instance: HostedInstance, spec: Spec, domains: Collection[str], slot: CopySlot
    ) -> None:
        instance.refuse_erased()
        former = instance.record.spec
        if former.engine_version != spec.engine_version and not instance.data_lost:
            await self._upgrade(instance, spec, slot)
        spec = self._supervisor.beginnings.kept(instance, spec)
        # What was told later than this of who may reach it holds already.
        instance.specify(instance.with_told_network(spec, domains))
        if former.domains or spec.domains:
            # Before the gateway hears of the name: there is no moment without a certificate.
            await self._supervisor.certify_domains()
        self._supervisor.save(instance)
        if instance.record.desired == "running":
            # What the engine is started with is compared; the rest is the gateway's matter.
            same = (former.engine_version, former.size) == (spec.engine_version, spec.size)
            if not (same and instance.usable):
                await self._supervisor.stop(instance)
                await self._start(instance)

    async def pause(self, instance_id: str) -> HostedInstance:
        instance = self._free(instance_id)
        async with instance.lock:
            instance.pause()
            # First the gateway: a connection that comes now is refused and not cut.
            self._supervisor.save(instance)
            await self._supervisor.stop(instance)
        return instance

    async def resume(self, instance_id: str) -> HostedInstance:
        instance = self._free(instance_id)
        async with instance.lock:
            instance.refuse_gone("resume")
            await self._resume(instance)
        return instance

    async def resize(self, instance_id: str, size: Size) -> HostedInstance:
        instance = self._free(instance_id)
        async with instance.lock:
            instance.refuse_gone("resize")
            former = instance.record.spec
            instance.specify(former.resized(size))
            self._supervisor.save(instance)
            process = instance.process
            if process is None or not instance.usable:
                if instance.record.desired == "running":
                    await self._start(instance)
            elif former.size != size and not await self._resized(instance, process, former):
                instance.became_unusable()
                self._supervisor.publish()
                await self._supervisor.stop(instance)
                await self._start(instance)
        return instance

    async def snapshot(self, instance_id: str, label: str) -> dict[str, Any]:
        instance = self._free(instance_id)
        slot = CopySlot(self._supervisor.pools.copies, self._supervisor.host, instance)
        async with locked_in_turn(instance, slot), login_turns.let_change(instance):
            if instance.record.desired == "erased":
                raise Conflict("cannot snapshot an instance that is erased")
            try:
                return await snapshots.make(instance, label, self._supervisor.login(instance))
            except EngineError as error:
                raise Unavailable(for_owner(str(error)), headers=RETRY_AFTER) from error

    async def delete(self, instance_id: str) -> HostedInstance:
        """Stops it and keeps its data; ends what is done with it otherwise."""
        instance = self.find(instance_id)
        async with bounds.locked_to_remove(self._supervisor.host, instance):
            if instance.delete():
                self._supervisor.save(instance)
                await self._supervisor.drop_domains(instance)
                await self._supervisor.stop(instance)
        return instance

    async def erase(self, instance_id: str) -> HostedInstance:
        instance = self.find(instance_id)
        async with bounds.locked_to_remove(self._supervisor.host, instance):
            instance.erase()
            self._supervisor.save(instance)
            await self._supervisor.drop_domains(instance)
            await self._supervisor.stop(instance)
            await instance.driver.erase(instance.site)
            for folder in (instance.site.directory, instance.site.run):
                await asyncio.to_thread(engine_files.remove, folder)
            self._credentials.erase(instance_id)
        log.info("cell.erased", instance_id=instance_id)
        return instance

    async def wake(self, instance_id: str) -> HostedInstance:
        """Returns when a login works; all who ask while it wakes wait for the same waking."""
        instance = self.find(instance_id)
        if instance.record.desired == "paused" and instance.record.paused_by == "request":
            raise Conflict("the instance was paused on request; resume it first")
        instance.refuse_gone("wake")
        if instance.status != "running" or instance.going_to_sleep:
            if instance.wake is None or instance.wake.done():
                instance.wake = self._supervisor.spawn(self._wake(instance))
            try:
                limit_s = self._settings.wake_timeout_s
                await asyncio.wait_for(asyncio.shield(instance.wake), limit_s)
            except TimeoutError as error:
                raise Unavailable(
                    "the instance is taking long to resume", headers=RETRY_AFTER
                ) from error
        if instance.status != "running":
            detail = instance.reason or f"the instance is {instance.status}"
            raise Unavailable(detail, headers=RETRY_AFTER)
        return instance

    async def abandon(self, instance_id: str, sessions: list[int], since: float) -> int:
        """Ends what works on for clients that have gone; answers how many sessions there were.

        `since` (unix seconds) is when the first was left: a server that was started later has given
        its number to another.
        """
        instance = self.find(instance_id)
        process, driver = instance.process, instance.driver
        if process is None or process.started_at > since or not isinstance(driver, EndsSessions):
            return 0
        try:
            return await driver.end_sessions(instance.site, sessions)
        except EngineError as error:
            raise Unavailable(for_owner(str(error)), headers=RETRY_AFTER) from error

    def credential(self, instance: HostedInstance, credential: Credential) -> dict[str, Any]:
        """What a person needs to connect."""
        login = login_of(instance.driver, credential)
        host = instance.record.spec.host
        port = self._settings.ports[instance.driver.protocol]
        return {
            "username": login.username,
            "password": login.password,
            "host": host,
            "port": port,
            "uri": instance.driver.uri(login, host, port),
        }

    async def rotate(self, instance: HostedInstance, overlap_s: float) -> dict[str, Any]:
        """A new credential; those before it stay valid for the overlap at most."""
        self._free(instance.instance_id)
        async with login_turns.locked(instance):
            made = self._credentials.make(instance.instance_id, overlap_s)
            try:
                await self._supervisor.hand_out_credentials(instance)
            except (EngineError, OSError) as error:
                self._supervisor.overlaps.owe(instance.instance_id)
                why = for_owner(str(error))
                detail = f"the engine did not accept the new credential: {why}"
                raise Unavailable(detail, headers=RETRY_AFTER) from error
            until = self._credentials.generation(instance.instance_id)[1]
        log.info("cell.rotated", instance_id=instance.instance_id, generation=made.generation)
        return {**self.credential(instance, made), "overlap_until": moment(until)}

    def revealed(self, instance: HostedInstance) -> dict[str, Any]:
        return self.credential(instance, self._credentials.valid(instance.instance_id)[0])

    def has_credentials(self, instance: HostedInstance) -> bool:
        return bool(self._credentials.generation(instance.instance_id)[0])

    def _why(self, engine: str) -> str:
        refusal = self._refused.get(engine)
        return "" if refusal is None else f": {refusal.reason}; {refusal.remedy}"

    def _find_or_make(self, instance_id: str, spec: Spec) -> HostedInstance:
        driver = self._drivers.get(spec.engine)
        if driver is None:
            raise Invalid(f"engine {spec.engine} does not run in this cell{self._why(spec.engine)}")
        if spec.engine_version not in driver.versions():
            raise Invalid(f"{spec.engine} {spec.engine_version} does not run in this cell")
        for other in self._supervisor.instances.values():
            taken = other.record.spec.host == spec.host and other.record.desired != "erased"
            if taken and other.instance_id != instance_id:
                raise Conflict("another instance has this host")
        found = self._supervisor.instances.get(instance_id)
        if found is not None:
            if found.record.spec.engine != spec.engine:
                raise Conflict(f"the instance runs {found.record.spec.engine}")
            return found
        if self._records.was_erased(instance_id):
            raise Conflict(ERASED)
        if (missing := self._supervisor.beginnings.missing(spec)) is not None:
            raise Conflict(missing)
        try:
            record = self._records.add(instance_id, spec)
        except NoUidError as error:
            raise Unavailable(str(error), headers=RETRY_AFTER) from error
        site = self._layout.site(instance_id, record.uid)
        instance = HostedInstance(record, site, driver)
        self._supervisor.instances[instance_id] = instance
        return instance

    async def _resized(self, instance: HostedInstance, process: Process, former: Spec) -> bool:
        """False where the engine must be started anew; Conflict where its data does not fit."""
        size = instance.record.spec.size
        try:
            return await instance.driver.resize(instance.site, process, size)
        except EngineError as error:
            instance.specify(instance.record.spec.resized(former.size))
            self._supervisor.save(instance)
            raise Conflict(f"cannot resize to {size.name}: {for_owner(str(error))}") from error

    async def _upgrade(self, instance: HostedInstance, spec: Spec, slot: CopySlot) -> None:
        """The specification is saved afterwards: until then it says which version the data is of.

        Raises Conflict where the driver cannot; the instance is as it was then.
        """
        former = instance.record.spec
        try:
            # It has one, unless another version was put while it waited for the lock.
            async with bounds.in_turn(instance, slot):
                await instance.check_upgrade(spec)
                await self._supervisor.stop(instance)
                bytes_max = max(map(instance.ceiling_of, (former.size, spec.size)))
                limits = (bytes_max, self._settings.upgrade_timeout_s)
                async with bounds.bounded(self._supervisor.host, instance, UPGRADE, *limits):
                    await instance.driver.upgrade(instance.site, former, spec)
        except Exception as error:  # whatever it is, the instance is not left stopped
            known = isinstance(error, (EngineError, OSError))
            log.warning(
                "cell.upgrade_failed",
                instance_id=instance.instance_id,
                reason=str(error),
                exc_info=None if known else error,
            )
            if instance.record.desired == "running" and not (instance.leaving or instance.usable):
                await self._start(instance)
            to = f"{former.engine_version} to {spec.engine_version}"
            why = for_owner(str(error)) if known else "an internal error"
            raise Conflict(f"the upgrade from {to} failed: {why}") from error
        versions = {"former": former.engine_version, "version": spec.engine_version}
        log.info("cell.upgraded", instance_id=instance.instance_id, **versions)

    async def _start(self, instance: HostedInstance) -> None:
        """Raises Unavailable, or Conflict where trying again is in vain.

        Remembers why for whoever asks later.
        """
        try:
            await self._supervisor.bring_up(instance)
        except (EngineError, OSError) as error:
            instance.start_failed(str(error))
            self._supervisor.publish()
            log.warning("cell.start_failed", instance_id=instance.instance_id, reason=str(error))
            told = for_owner(str(error))
            if isinstance(error, FullError):
                self._supervisor.start_full_later(instance, str(error))
            if isinstance(error, FinalError):
                raise Conflict(told) from error
            raise Unavailable(told, headers=RETRY_AFTER) from error

    async def _resume(self, instance: HostedInstance) -> None:
        if instance.resume():
            self._supervisor.save(instance)
        if not instance.usable:
            await self._supervisor.stop(instance)
            await self._start(instance)

    async def _wake(self, instance: HostedInstance) -> None:
        async with instance.lock:
            record = instance.record
            if record.desired == "running" or record.paused_by == "idle":
                try:
                    await self._resume(instance)
                except (Conflict, Unavailable):
                    # Said by the instance's status, to everybody who waits.
                    return
