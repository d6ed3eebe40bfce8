"""What is asked of an instance: made, paused, resumed, resized, copied, deleted, erased, woken."""

import asyncio
import shutil
import time
from collections.abc import Iterable
from typing import Any

import structlog

from cell.access import network
from cell.access.credentials import Credential, Credentials
from cell.engines import Found
from cell.engines.driver import Ending, EngineError
from cell.instances import bounds, snapshots
from cell.instances.ceilings import FullError
from cell.instances.reasons import for_owner
from cell.instances.records import Records
from cell.instances.residents import ROUTED, Resident
from cell.instances.state import ERASED
from cell.instances.supervisor import Supervisor, login_of
from cell.instances.uids import NoUidError
from cell.layout import Layout
from cell.runtime.process import Process
from cell.settings import CellSettings
from cell.specification import Size, Spec
from cell.timestamps import moment
from specserver import Conflict, Invalid, NotFound, Unavailable

log = structlog.get_logger("cell.lifecycle")

UPGRADE = "upgraded"
RETRY_AFTER = {"Retry-After": "1"}


class Lifecycle:
    """Each method returns when what it did is so; asked twice, it does nothing the second time."""

    def __init__(
        self,
        settings: CellSettings,
        layout: Layout,
        engines: Found,
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

    def find(self, instance_id: str) -> Resident:
        found = self._supervisor.residents.get(instance_id)
        if found is None:
            raise NotFound("the cell has no such instance")
        return found

    def _free(self, instance_id: str) -> Resident:
        """Raises Unavailable while it is upgraded, which nobody should wait for unheard."""
        resident = self.find(instance_id)
        if resident.work == UPGRADE:
            detail = "the instance is being upgraded; try again when that is done"
            raise Unavailable(detail, headers=RETRY_AFTER)
        return resident

    def observation(self, resident: Resident) -> dict[str, Any]:
        seen = resident.observation(
            self._settings.ports[resident.driver.protocol],
            self._supervisor.traffic_of(resident),
            self._credentials.generation(resident.instance_id),
        )
        routed = resident.record.desired in ROUTED
        domains = resident.record.spec.domains if routed else ()
        return {**seen, "domains": self._supervisor.domains.told(domains)}

    def told_erased(self, residents: Iterable[Resident]) -> None:
        """The control plane hears of these; what it does not know as erased it asks for again."""
        for resident in residents:
            if resident.record.desired == "erased" and resident.told_erased_at is None:
                resident.told_erased_at = time.monotonic()

    def forget_erased(self) -> None:
        """Those that the control plane has been told of for long enough, and that left nothing."""
        told_before = time.monotonic() - self._settings.erased_told_s
        for resident in list(self._supervisor.residents.values()):
            told_at = resident.told_erased_at
            if told_at is not None and told_at < told_before and self._left_nothing(resident):
                self._records.forget(resident.record)
                del self._supervisor.residents[resident.instance_id]
                log.info("cell.erased_forgotten", instance_id=resident.instance_id)

    def _left_nothing(self, resident: Resident) -> bool:
        """Otherwise an erasure is under way, or failed and will be asked for again."""
        folders = (resident.site.directory, resident.site.run)
        return not (
            resident.lock.locked()
            or self.has_credentials(resident)
            or any(folder.exists() for folder in folders)
        )

    async def put(self, instance_id: str, spec: Spec) -> Resident:
        """Makes the instance, or brings the one there is to what is wanted now."""
        network.check(spec, f"{self._settings.region}.{self._settings.instance_domain}")
        resident = self._resident(instance_id, spec)
        async with resident.lock:
            resident.refuse_erased()
            former = resident.record.spec
            if former.engine_version != spec.engine_version:
                await self._upgrade(resident, spec)
            resident.specify(spec)
            if former.domains or spec.domains:
                # Before the gateway hears of the name: there is no moment without a certificate.
                await self._supervisor.certify_domains()
            self._supervisor.save(resident)
            if resident.record.desired == "running":
                # What the engine is started with is compared; the rest is the gateway's matter.
                same = (former.engine_version, former.size) == (spec.engine_version, spec.size)
                if not (same and resident.usable):
                    await self._supervisor.stop(resident)
                    await self._start(resident)
        return resident

    async def pause(self, instance_id: str) -> Resident:
        resident = self._free(instance_id)
        async with resident.lock:
            resident.pause()
            # First the gateway: a connection that comes now is refused and not cut.
            self._supervisor.save(resident)
            await self._supervisor.stop(resident)
        return resident

    async def resume(self, instance_id: str) -> Resident:
        resident = self._free(instance_id)
        async with resident.lock:
            resident.refuse_gone("resume")
            await self._resume(resident)
        return resident

    async def resize(self, instance_id: str, size: Size) -> Resident:
        resident = self._free(instance_id)
        async with resident.lock:
            resident.refuse_gone("resize")
            former = resident.record.spec
            resident.specify(former.resized(size))
            self._supervisor.save(resident)
            process = resident.process
            if process is None or not resident.usable:
                if resident.record.desired == "running":
                    await self._start(resident)
            elif former.size != size and not await self._resized(resident, process, former):
                resident.became_unusable()
                self._supervisor.publish()
                await self._supervisor.stop(resident)
                await self._start(resident)
        return resident

    async def snapshot(self, instance_id: str, label: str) -> dict[str, Any]:
        resident = self._free(instance_id)
        turn = self._supervisor.pools.snapshots.turn(resident.record.tenant)
        # In this order: what waits for its own instance takes no place from others.
        async with resident.lock, turn:
            if resident.record.desired == "erased":
                raise Conflict("cannot snapshot an instance that is erased")
            try:
                return await snapshots.make(resident, label, self._supervisor.login(resident))
            except EngineError as error:
                raise Unavailable(for_owner(str(error)), headers=RETRY_AFTER) from error

    async def delete(self, instance_id: str) -> Resident:
        """Stops it and keeps its data; ends what is done with it otherwise."""
        resident = self.find(instance_id)
        async with bounds.taken(self._supervisor.host, resident):
            if resident.delete():
                self._supervisor.save(resident)
                await self._supervisor.drop_domains(resident)
                await self._supervisor.stop(resident)
        return resident

    async def erase(self, instance_id: str) -> Resident:
        resident = self.find(instance_id)
        async with bounds.taken(self._supervisor.host, resident):
            resident.erase()
            self._supervisor.save(resident)
            await self._supervisor.drop_domains(resident)
            await self._supervisor.stop(resident)
            await resident.driver.erase(resident.site)
            for directory in (resident.site.directory, resident.site.run):
                if directory.exists():
                    await asyncio.to_thread(shutil.rmtree, directory)
            self._credentials.erase(instance_id)
        log.info("cell.erased", instance_id=instance_id)
        return resident

    async def wake(self, instance_id: str) -> Resident:
        """Returns when a login works; all who ask while it wakes wait for the same waking."""
        resident = self.find(instance_id)
        if resident.record.desired == "paused" and resident.record.paused_by == "request":
            raise Conflict("the instance was paused on request; resume it first")
        resident.refuse_gone("wake")
        if resident.status != "running" or resident.going_to_sleep:
            if resident.wake is None or resident.wake.done():
                resident.wake = self._supervisor.spawn(self._wake(resident))
            try:
                limit_s = self._settings.wake_timeout_s
                await asyncio.wait_for(asyncio.shield(resident.wake), limit_s)
            except TimeoutError as error:
                raise Unavailable(
                    "the instance is taking long to resume", headers=RETRY_AFTER
                ) from error
        if resident.status != "running":
            detail = resident.reason or f"the instance is {resident.status}"
            raise Unavailable(detail, headers=RETRY_AFTER)
        return resident

    async def abandon(self, instance_id: str, sessions: list[int], since: float) -> int:
        """Ends what works on for clients that have gone; answers how many sessions there were.

        `since` (unix seconds) is when the first was left: a server that was started later has given
        its number to another.
        """
        resident = self.find(instance_id)
        process, driver = resident.process, resident.driver
        if process is None or process.started_at > since or not isinstance(driver, Ending):
            return 0
        try:
            return await driver.end_sessions(resident.site, sessions)
        except EngineError as error:
            raise Unavailable(for_owner(str(error)), headers=RETRY_AFTER) from error

    def credential(self, resident: Resident, credential: Credential) -> dict[str, Any]:
        """What a person needs to connect."""
        login = login_of(resident.driver, credential)
        host = resident.record.spec.host
        port = self._settings.ports[resident.driver.protocol]
        return {
            "username": login.username,
            "password": login.password,
            "host": host,
            "port": port,
            "uri": resident.driver.uri(login, host, port),
        }

    async def rotate(self, resident: Resident) -> dict[str, Any]:
        """A new credential; the one before stays valid for the overlap."""
        self._free(resident.instance_id)
        async with resident.lock:
            overlap_s = resident.record.spec.rotation_overlap_s
            made = self._credentials.make(resident.instance_id, overlap_s)
            try:
                await self._supervisor.hand_out_credentials(resident)
            except (EngineError, OSError) as error:
                self._supervisor.overlaps.owe(resident.instance_id)
                why = for_owner(str(error))
                detail = f"the engine did not accept the new credential: {why}"
                raise Unavailable(detail, headers=RETRY_AFTER) from error
            until = self._credentials.generation(resident.instance_id)[1]
        log.info("cell.rotated", instance_id=resident.instance_id, generation=made.generation)
        return {**self.credential(resident, made), "overlap_until": moment(until)}

    def revealed(self, resident: Resident) -> dict[str, Any]:
        return self.credential(resident, self._credentials.valid(resident.instance_id)[0])

    def has_credentials(self, resident: Resident) -> bool:
        return bool(self._credentials.generation(resident.instance_id)[0])

    def _why(self, engine: str) -> str:
        refusal = self._refused.get(engine)
        return "" if refusal is None else f": {refusal.reason}; {refusal.remedy}"

    def _resident(self, instance_id: str, spec: Spec) -> Resident:
        driver = self._drivers.get(spec.engine)
        if driver is None:
            raise Invalid(f"engine {spec.engine} does not run in this cell{self._why(spec.engine)}")
        if spec.engine_version not in driver.versions():
            raise Invalid(f"{spec.engine} {spec.engine_version} does not run in this cell")
        for other in self._supervisor.residents.values():
            taken = other.record.spec.host == spec.host and other.record.desired != "erased"
            if taken and other.instance_id != instance_id:
                raise Conflict("another instance has this host")
        found = self._supervisor.residents.get(instance_id)
        if found is not None:
            if found.record.spec.engine != spec.engine:
                raise Conflict(f"the instance runs {found.record.spec.engine}")
            return found
        if self._records.was_erased(instance_id):
            raise Conflict(ERASED)
        source = spec.source_snapshot
        if source is not None and snapshots.find(self._layout, source) is None:
            raise Conflict(f"the cell has no snapshot {source}")
        try:
            record = self._records.add(instance_id, spec)
        except NoUidError as error:
            raise Unavailable(str(error), headers=RETRY_AFTER) from error
        site = self._layout.site(instance_id, record.uid)
        resident = Resident(record, site, driver)
        self._supervisor.residents[instance_id] = resident
        return resident

    async def _resized(self, resident: Resident, process: Process, former: Spec) -> bool:
        """False where the engine must be started anew; Conflict where its data does not fit."""
        size = resident.record.spec.size
        try:
            return await resident.driver.resize(resident.site, process, size)
        except EngineError as error:
            resident.specify(former)
            self._supervisor.save(resident)
            why = for_owner(str(error))
            raise Conflict(f"cannot resize to {size.name}: {why}") from error

    async def _upgrade(self, resident: Resident, spec: Spec) -> None:
        """The specification is saved afterwards: until then it says which version the data is of.

        Raises Conflict where the driver cannot; the instance is as it was then.
        """
        former = resident.record.spec
        turn = self._supervisor.pools.snapshots.turn(resident.record.tenant)
        try:
            # It runs on until there is a place: its data is copied, as for a snapshot.
            async with bounds.in_turn(resident, turn):
                await self._supervisor.stop(resident)
                bytes_max = max(former.size.ceiling_bytes, spec.size.ceiling_bytes)
                limits = (bytes_max, self._settings.upgrade_timeout_s)
                async with bounds.bounded(self._supervisor.host, resident, UPGRADE, *limits):
                    await resident.driver.upgrade(resident.site, former, spec)
        except Exception as error:  # whatever it is, the instance is not left stopped
            known = isinstance(error, (EngineError, OSError))
            log.warning(
                "cell.upgrade_failed",
                instance_id=resident.instance_id,
                reason=str(error),
                exc_info=None if known else error,
            )
            if resident.record.desired == "running" and not resident.leaving:
                await self._start(resident)
            to = f"{former.engine_version} to {spec.engine_version}"
            why = for_owner(str(error)) if known else "an internal error"
            raise Conflict(f"the upgrade from {to} failed: {why}") from error
        versions = {"former": former.engine_version, "version": spec.engine_version}
        log.info("cell.upgraded", instance_id=resident.instance_id, **versions)

    async def _start(self, resident: Resident) -> None:
        """Raises Unavailable, or Conflict where trying again is in vain.

        Remembers why for whoever asks later.
        """
        try:
            await self._supervisor.bring_up(resident)
        except (EngineError, OSError) as error:
            resident.start_failed(str(error))
            self._supervisor.publish()
            log.warning("cell.start_failed", instance_id=resident.instance_id, reason=str(error))
            told = for_owner(str(error))
            if isinstance(error, FullError):
                raise Conflict(told) from error
            raise Unavailable(told, headers=RETRY_AFTER) from error

    async def _resume(self, resident: Resident) -> None:
        if resident.resume():
            self._supervisor.save(resident)
        if not resident.usable:
            await self._supervisor.stop(resident)
            await self._start(resident)

    async def _wake(self, resident: Resident) -> None:
        async with resident.lock:
            record = resident.record
            if record.desired == "running" or record.paused_by == "idle":
                try:
                    await self._resume(resident)
                except (Conflict, Unavailable):
                    # Said by the instance's status, to everybody who waits.
                    return
