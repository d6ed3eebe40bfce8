"""An instance gets the data of one of its backups, or keeps what it has."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from cell.backups.lineage import Lineage
from cell.backups.manifest import BackupName, Manifest
from cell.backups.repository import Repository
from cell.backups.sealed_objects import DamagedError
from cell.engines.driver import EngineError, FinalError, Login
from cell.engines.packed_snapshots import archive_of
from cell.engines.wal_sources import ArchivesWal, RecoveryTarget
from cell.instances import bounds, replaced_data, starting
from cell.instances.backups import RETRY_AFTER, InstanceBackups, told
from cell.instances.beginnings import UNPACKED
from cell.instances.copied import Copied
from cell.instances.copy_slots import CopySlot, locked_in_turn
from cell.instances.hosted import BackupProgress, HostedInstance
from cell.instances.lost_data import LOST
from cell.instances.reasons import for_owner
from cell.instances.start_slots import StartSlot
from cell.instances.supervisor import Supervisor
from cell.instances.wal_recoveries import WalPlan, WalRecoveries
from cell.runtime import budget, engine_files
from cell.runtime.own_threads import in_own_thread
from cell.settings import CellSettings
from specserver import Conflict, Unavailable

log = structlog.get_logger("cell.restores")

RESTORED = "restored"


class Restores:
    def __init__(
        self,
        settings: CellSettings,
        supervisor: Supervisor,
        repository: Repository,
        backups: InstanceBackups,
        recoveries: WalRecoveries,
        copied: Copied,
    ) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._repository = repository
        self._backups = backups
        self._recoveries = recoveries
        self._copied = copied

    async def restore(
        self, instance: HostedInstance, backup_id: str, at: float | None = None
    ) -> None:
        """In place; to the moment `at`, in unix seconds, if one is given.

        Conflict or Unavailable where that cannot be, and all is as it was.
        """
        name = BackupName(instance.instance_id, backup_id)
        with self._backups.used(name):
            async with instance.backups_lock:
                instance.refuse_gone("restore")
                if instance.data_lost:
                    raise Conflict(LOST)
                try:
                    with told("the restore failed"):
                        await self._find_and_restore(instance, name, at)
                finally:
                    instance.restore = None
                    self._backups.room.leave(instance)
        log.info("cell.restored", instance_id=name.instance_id, backup_id=backup_id)

    async def _find_and_restore(
        self, instance: HostedInstance, name: BackupName, at: float | None
    ) -> None:
        try:
            found = await self._repository.find(name)
            if found is None:
                raise Conflict(f"the instance has no backup {name.backup_id}")
            refuse_what_does_not_fit(instance, found)
            whole = await self._repository.lineage(found)
            plan = None if at is None else await self._plan(instance, name, at)
            wal_bytes = 0 if plan is None else plan.size_bytes
            self._backups.room.take(instance, whole.stream_bytes + wal_bytes)
            progress = BackupProgress(name.backup_id, "downloading", whole.stream_bytes)
            instance.restore = progress
            await self._restore(instance, whole, progress, _Target(at, plan))
        except DamagedError as error:
            raise Conflict(f"the backup {name.backup_id} is damaged: {error}") from error

    async def _plan(self, instance: HostedInstance, name: BackupName, at: float) -> WalPlan:
        if not isinstance(instance.driver, ArchivesWal):
            raise Conflict("the engine of the instance has no WAL to recover from")
        return await self._recoveries.plan(name.instance_id, name.backup_id, at)

    async def _restore(
        self,
        instance: HostedInstance,
        whole: Lineage,
        progress: BackupProgress,
        target: "_Target",
    ) -> None:
        """Its engine runs on until all of the backup has been read."""
        pools, host = self._supervisor.pools, self._supervisor.host
        folder, found = instance.site.directory / UNPACKED, whole.newest
        try:
            await in_own_thread(engine_files.remove, folder)
            turn = CopySlot(pools.copies, host, instance)
            async with bounds.in_turn_unlocked(instance, turn):
                with budget.limit(whole.stream_bytes, ended=instance.why_backup_ends):
                    is_copy = await self._repository.unpack(
                        whole, folder, progress.add, archive_of(instance.driver)
                    )
                    if target.plan is not None:
                        is_copy |= await self._recoveries.fetch(target.plan, folder)
            slot = CopySlot(pools.copies, host, instance)
            async with locked_in_turn(instance, slot):
                instance.refuse_gone("restore")
                refuse_what_does_not_fit(instance, found)
                progress.phase = "starting"
                await self._replace(instance, slot, target)
            instance.restored = (found.backup_id, is_copy)
            self._copied.note_restored(found.instance_id, found.backup_id, is_copy=is_copy)
        finally:
            await in_own_thread(replaced_data.clear, instance.site)

    def login(self, instance: HostedInstance) -> Login:
        """Of its owner, by which data is looked at."""
        return self._supervisor.login(instance)

    async def put(
        self, instance: HostedInstance, folder: Path, check: Callable[[], Awaitable[None]]
    ) -> None:
        """A copy in the form of a snapshot becomes the data. Unavailable where it does not.

        Nor where `check` raises, which looks at what clients have written to the very last.
        """
        slot = CopySlot(self._supervisor.pools.copies, self._supervisor.host, instance)
        async with instance.backups_lock, locked_in_turn(instance, slot):
            instance.refuse_gone("migrate into")
            instance.is_replaced = True
            try:
                await self._replace(instance, slot, _Target(None, None, folder), check)
            finally:
                instance.is_replaced = False
                await in_own_thread(replaced_data.clear, instance.site)

    async def _replace(
        self,
        instance: HostedInstance,
        slot: CopySlot,
        target: "_Target",
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """With the lock held. What is tried takes the place only once it has taken a login."""
        site = instance.site
        wal_bytes = 0 if target.plan is None else target.plan.size_bytes
        bytes_max = instance.ceiling_bytes + wal_bytes
        limits = (bytes_max, target.within_s(self._settings))
        try:
            await self._stop(instance)
            if check is not None:
                await self._look_alone(instance, check)
            # What it wrote last is archived, before that of other data is.
            await self._backups.archives.settle(instance)
            await in_own_thread(replaced_data.set_aside, site)
            # What a driver knows of the former data.
            await instance.driver.erase(site)
            site.make(self._supervisor.host.owner(site))
            async with bounds.bounded(self._supervisor.host, instance, RESTORED, *limits):
                with budget.limit(bytes_max):
                    await target.give(instance, self._settings)
            await slot.leave()
            await self._supervisor.bring_up(instance)
        except BaseException as error:
            await self._put_back(instance)
            if isinstance(error, Exception):
                await self._start_again(instance)
            if isinstance(error, (EngineError, OSError)):
                why = for_owner(str(error))
                detail = f"the restore failed, and the instance has its former data: {why}"
                if isinstance(error, FinalError):
                    raise Conflict(detail) from error
                raise Unavailable(detail, headers=RETRY_AFTER) from error
            raise
        await in_own_thread(replaced_data.keep_new, site)
        self._backups.archives.replaced(instance)
        if instance.record.desired != "running":
            await self._stop(instance)

    async def _stop(self, instance: HostedInstance) -> None:
        """The gateway is told before."""
        instance.became_unusable()
        self._supervisor.publish()
        await self._supervisor.stop(instance)
        self._supervisor.publish()

    async def _look_alone(
        self, instance: HostedInstance, check: Callable[[], Awaitable[None]]
    ) -> None:
        """With the engine started once more, where the gateway leads nobody.

        Its clients could write, and were told so, until it was stopped.
        """
        supervisor, spec = self._supervisor, instance.record.spec
        async with bounds.in_turn(
            instance, slot := StartSlot(supervisor.pools, supervisor.host, instance)
        ):
            await supervisor.prepare(instance)
            await asyncio.to_thread(instance.site.empty_run)
            process = await starting.launched(instance, spec)
            instance.engine_started(process)
            slot.limit_cpu()
            supervisor.host.headroom.give(process.group, spec.size.memory_bytes)
            login = supervisor.login(instance)
            await starting.until_usable(instance, process, login, self._settings, slot)
        await check()
        await supervisor.stop(instance)

    async def _put_back(self, instance: HostedInstance) -> None:
        await self._supervisor.stop(instance)
        if await in_own_thread(replaced_data.put_back, instance.site):
            await instance.driver.erase(instance.site)

    async def _start_again(self, instance: HostedInstance) -> None:
        """With its former data."""
        if instance.record.desired != "running" or instance.leaving:
            return
        try:
            await self._supervisor.bring_up(instance)
        except (EngineError, OSError) as error:
            instance.start_failed(str(error))
            self._supervisor.publish()
            log.error(  # noqa: TRY400 - one line
                "cell.former_data_not_started",
                instance_id=instance.instance_id,
                reason=str(error),
            )


@dataclass(frozen=True)
class _Target:
    """The moment that a backup is recovered to with its WAL; None: that of the backup.

    Or other data, in the folder `given`.
    """

    at: float | None
    plan: WalPlan | None
    given: Path | None = None

    def within_s(self, settings: CellSettings) -> float:
        return settings.upgrade_timeout_s if self.at is None else settings.recovery_timeout_s

    async def give(self, instance: HostedInstance, settings: CellSettings) -> None:
        """What was unpacked becomes the data."""
        site, driver = instance.site, instance.driver
        folder = self.given or site.directory / UNPACKED
        if self.at is None or not isinstance(driver, ArchivesWal):
            await driver.restore(site, folder)
        else:
            spec = instance.record.spec
            target = RecoveryTarget(spec, self.at, settings.recovery_timeout_s)
            await driver.recover(site, folder, target)


def refuse_what_does_not_fit(instance: HostedInstance, found: Manifest) -> None:
    """Raises Conflict where trying again is in vain."""
    spec = instance.record.spec
    if (found.engine, found.engine_version) != (spec.engine, spec.engine_version):
        taken = f"{found.engine} {found.engine_version}"
        raise Conflict(f"the backup is of {taken}, not {spec.engine} {spec.engine_version}")
    if found.size_bytes > instance.ceiling_bytes:
        raise Conflict(str(budget.exceeded(instance.ceiling_bytes)))
