"""The data that a new instance begins with: a snapshot, a backup, or none."""

import contextlib
from dataclasses import replace
from pathlib import Path

from cell.backups.manifest import BackupName
from cell.backups.repository import Repository
from cell.backups.sealed_objects import DamagedError
from cell.backups.store import StoreError
from cell.engines.driver import EngineError, FinalError
from cell.engines.packed_snapshots import archive_of
from cell.engines.wal_sources import ArchivesWal, RecoveryTarget
from cell.instances import snapshots
from cell.instances.ceilings import FullError
from cell.instances.copied import Copied
from cell.instances.hosted import BackupProgress, HostedInstance
from cell.instances.lost_data import LOST, LostData
from cell.instances.snapshots import BEGUN
from cell.instances.wal_recoveries import WalRecoveries
from cell.layout import Layout, write_atomically
from cell.runtime import budget, engine_files
from cell.runtime.own_threads import in_own_thread
from cell.settings import CellSettings
from cell.specification import Spec
from specserver import Conflict

# Where a backup is unpacked, beside the instance's data.
UNPACKED = "restore"


class Beginnings:
    def __init__(
        self,
        settings: CellSettings,
        layout: Layout,
        repository: Repository,
        recoveries: WalRecoveries,
        lost_data: LostData,
        copied: Copied,
    ) -> None:
        self._settings = settings
        self._layout = layout
        self._repository = repository
        self._recoveries = recoveries
        self._lost_data = lost_data
        self._copied = copied

    def missing(self, spec: Spec) -> str | None:
        """What a new instance would begin with and this cell cannot have; None where all is well.

        Whether a backup is in the store is seen when the instance begins.
        """
        snapshot, backup = spec.source_snapshot, spec.source_backup
        if snapshot is not None and backup is not None:
            return "an instance begins with a snapshot or with a backup, not with both"
        if snapshot is not None and snapshots.find(self._layout, snapshot) is None:
            return f"the cell has no snapshot {snapshot}"
        if backup is not None:
            key = self._repository.keys.find(BackupName.parse(backup).instance_id)
            if key is None:
                return f"the cell has no key for backup {backup}"
        return None

    def is_owed(self, instance: HostedInstance) -> bool:
        """Whether the instance has yet to begin."""
        spec = instance.record.spec
        source = spec.source_snapshot or spec.source_backup
        return source is not None and not (instance.site.directory / BEGUN).exists()

    async def limits(self, instance: HostedInstance) -> tuple[int, float]:
        """How many bytes it may take to begin, and how long: more with WAL to replay."""
        spec, settings = instance.record.spec, self._settings
        if spec.source_at is None or spec.source_backup is None:
            return instance.ceiling_bytes, settings.upgrade_timeout_s
        name = BackupName.parse(spec.source_backup)
        wal_bytes = 0
        # Whoever begins is told what is wrong.
        with contextlib.suppress(Conflict, StoreError, DamagedError):
            plan = await self._recoveries.plan(name.instance_id, name.backup_id, spec.source_at)
            wal_bytes = plan.size_bytes
        return instance.ceiling_bytes + wal_bytes, settings.recovery_timeout_s

    def kept(self, instance: HostedInstance, spec: Spec) -> Spec:
        """What an instance is to begin with does not change until it has begun.

        Unless its data was lost: then it is told what to begin with instead.
        """
        if instance.data_lost or not self.is_owed(instance):
            return spec
        former = instance.record.spec
        return replace(
            spec,
            source_snapshot=former.source_snapshot,
            source_backup=former.source_backup,
            source_at=former.source_at,
        )

    def check(self, instance: HostedInstance) -> None:
        """Conflict where its data was lost and nobody has said what it is to begin with instead."""
        if instance.data_lost and not self.is_owed(instance):
            instance.start_failed(LOST)
            raise Conflict(LOST)

    async def begin(self, instance: HostedInstance) -> None:
        """Puts the data in place where that `is_owed`.

        Raises FinalError where it is not there, is damaged, or does not fit.
        """
        backup = instance.record.spec.source_backup
        if backup is None:
            await snapshots.begin(instance, self._layout)
            return
        folder = instance.site.directory / UNPACKED
        try:
            is_copy = await self._unpack(instance, backup)
            is_copy |= await self._restore(instance, backup, folder)
        except StoreError as error:
            raise EngineError(str(error)) from error
        except DamagedError as error:
            raise FinalError(f"backup {backup} is damaged: {error}") from error
        finally:
            await in_own_thread(engine_files.remove, folder)
            instance.restore = None
        instance.restored = (BackupName.parse(backup).backup_id, is_copy)
        self._copied.note_restored(instance.instance_id, instance.restored[0], is_copy=is_copy)
        write_atomically(instance.site.directory / BEGUN, backup.encode())
        if BackupName.parse(backup).instance_id == instance.instance_id:
            self._lost_data.forget(instance.instance_id)
            instance.data_lost, instance.has_backup_key = False, True

    async def _restore(self, instance: HostedInstance, backup: str, folder: Path) -> bool:
        """Whether any archived WAL was read from the second store."""
        at, driver = instance.record.spec.source_at, instance.driver
        if at is None:
            with budget.limit(instance.ceiling_bytes):
                await driver.restore(instance.site, folder)
            return False
        if not isinstance(driver, ArchivesWal):
            raise FinalError("the engine has no WAL to recover from")
        name = BackupName.parse(backup)
        try:
            plan = await self._recoveries.plan(name.instance_id, name.backup_id, at)
        except Conflict as error:
            # Not the last word: what is committed now is archived a few seconds later.
            raise EngineError(str(error)) from error
        with budget.limit(instance.ceiling_bytes + plan.size_bytes):
            is_copy = await self._recoveries.fetch(plan, folder)
            within_s = self._settings.recovery_timeout_s
            target = RecoveryTarget(instance.record.spec, at, within_s)
            await driver.recover(instance.site, folder, target)
        return is_copy

    async def _unpack(self, instance: HostedInstance, backup: str) -> bool:
        """Whether any of it was read from the second store."""
        found = await self._repository.find(BackupName.parse(backup))
        if found is None:
            raise FinalError(f"there is no backup {backup} in the store")
        spec = instance.record.spec
        if (found.engine, found.engine_version) != (spec.engine, spec.engine_version):
            taken = f"{found.engine} {found.engine_version}"
            raise FinalError(
                f"backup {backup} is of {taken}, not {spec.engine} {spec.engine_version}"
            )
        if found.size_bytes > instance.ceiling_bytes:
            told = str(budget.exceeded(instance.ceiling_bytes))
            raise FullError(told, found.size_bytes)
        folder = instance.site.directory / UNPACKED
        await in_own_thread(engine_files.remove, folder)
        whole = await self._repository.lineage(found)
        instance.restore = BackupProgress(found.backup_id, "downloading", whole.stream_bytes)
        with budget.limit(whole.stream_bytes):
            is_copy = await self._repository.unpack(
                whole, folder, instance.restore.add, archive_of(instance.driver)
            )
        instance.restore.phase = "starting"
        return is_copy
