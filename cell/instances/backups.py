"""What is asked of an instance's backups: made, listed and removed."""

import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial

import structlog

from cell.backups.keys import RecoveryError
from cell.backups.manifest import BackupName, Kind, Manifest, StoredContent
from cell.backups.repository import Repository
from cell.backups.sealed_objects import DamagedError
from cell.backups.sealed_parts import Packed, SealedParts
from cell.backups.store import StoreError
from cell.engines.driver import EngineError, Login, Snapshot
from cell.engines.increments import PackedCopy, PacksIncrements
from cell.engines.packed_snapshots import ArchiveOutput, PacksSnapshots
from cell.instances import bounds, login_turns, snapshots
from cell.instances.backup_copies import BackupCopies
from cell.instances.copy_slots import CopySlot, locked_in_turn
from cell.instances.disk_room import DiskRoom
from cell.instances.hosted import BackupProgress, HostedInstance
from cell.instances.increments import BackupMark, Increments
from cell.instances.lost_data import LOST
from cell.instances.reasons import for_owner
from cell.instances.supervisor import Supervisor
from cell.instances.uids import NoUidError
from cell.instances.verification import Verifier
from cell.instances.wal_archives import WalArchives
from cell.layout import Layout
from cell.runtime import budget, engine_files
from cell.runtime.folder_sizes import size_bytes
from cell.runtime.own_threads import in_own_thread
from cell.runtime.process import Process
from cell.settings import CellSettings
from cell.specification import Spec
from specserver import Conflict, Unavailable

log = structlog.get_logger("cell.backups")

SPOOL = "backup"
"""Beside the data: the copy that is written into the store, and then removed."""
RETRY_AFTER = {"Retry-After": "5"}
FAILURES = (EngineError, OSError, StoreError, DamagedError, RecoveryError, NoUidError)


@dataclass
class _Making:
    """A backup that is being made; `former` is what it may build on, of so many bytes in all."""

    instance: HostedInstance
    name: BackupName
    kind: Kind
    progress: BackupProgress
    deadline: float
    former: BackupMark | None = None
    former_bytes: int = 0


class InstanceBackups:
    """Each method returns when what it did is so; asked twice, it does nothing the second time."""

    def __init__(
        self,
        settings: CellSettings,
        layout: Layout,
        supervisor: Supervisor,
        repository: Repository,
        verifier: Verifier,
        archives: WalArchives,
        copies: BackupCopies,
        increments: Increments,
    ) -> None:
        self._settings = settings
        self._layout = layout
        self._supervisor = supervisor
        self._repository = repository
        self._verifier = verifier
        self._copies = copies
        self._increments = increments
        self.room = DiskRoom()
        self.archives = archives
        self._in_use: Counter[BackupName] = Counter()

    async def make(self, instance: HostedInstance, backup_id: str, kind: Kind) -> Manifest:
        """Complete and verified; Unavailable where that fails, and nothing of it is left."""
        name = BackupName(instance.instance_id, backup_id)
        with self.used(name):
            async with instance.backups_lock:
                if (why := instance.why_backup_ends()) is not None:
                    raise Conflict(f"the backup was not made: {why}")
                with told("the backup failed"):
                    if (found := await self._repository.find_written(name)) is not None:
                        self._add_base(found)
                        return found
                    if instance.data_lost:
                        raise Conflict(f"the backup was not made: {LOST}")
                    instance.backup = BackupProgress(backup_id, "copying")
                    try:
                        return await self._make(instance, name, kind, instance.backup)
                    finally:
                        instance.backup = None
                        self.room.leave(instance)

    async def _make(
        self, instance: HostedInstance, name: BackupName, kind: Kind, progress: BackupProgress
    ) -> Manifest:
        spool = instance.site.directory / SPOOL
        # From now on an erasure looks into the store.
        instance.has_backup_key = True
        self._repository.keys.of(name.instance_id)
        deadline = time.monotonic() + self._settings.backup_timeout_s
        making = _Making(instance, name, kind, progress, deadline)
        is_done = False
        with contextlib.ExitStack() as held:
            try:
                # Of an attempt that was broken off.
                await in_own_thread(engine_files.remove, spool)
                await self._repository.remove(name)
                await self._find_former(making, held)
                made, copied = await self._made(making)
                if (why := instance.why_backup_ends()) is not None:
                    raise EngineError(why)
                stored = await self._repository.commit(made)
                is_done = True
                self._add_base(stored)
                await self._increments.note(instance, stored, copied.mark, making.former)
                self._copies.changed(instance)
            finally:
                await in_own_thread(engine_files.remove, spool)
                if not is_done:
                    with contextlib.suppress(StoreError):
                        await self._repository.remove(name)
        said = {"size_bytes": made.size_bytes, "is_incremental": made.is_incremental}
        self._log("cell.backed_up", name, **said)
        return stored

    async def _made(self, making: "_Making") -> tuple[Manifest, PackedCopy]:
        """In the store, but for its manifest, and verified."""
        instance, name = making.instance, making.name
        chain = self.archives.begun(instance)
        began, spec, copied, sealed = await self._copy(making)
        content = await self._write(making, copied.snapshot, sealed)
        await in_own_thread(engine_files.remove, instance.site.directory / SPOOL)
        former = making.former if copied.is_incremental else None
        made = Manifest(
            *(name.instance_id, name.backup_id, making.kind, spec.engine, spec.engine_version),
            *(copied.snapshot.size_bytes, began, began, content),
            parent=None if former is None else former.parent,
        )
        verified, extensions = await self._verifier.verify(instance, made, making.progress)
        made = replace(
            made,
            completed_at=time.time(),
            extensions=extensions,
            verification=verified,
            wal=self.archives.start_of(instance, chain, copied.snapshot.wal),
        )
        return made, copied

    async def _find_former(self, making: "_Making", held: contextlib.ExitStack) -> None:
        """What it may build on, which is not removed while it is held."""
        instance = making.instance
        if (former := await self._increments.mark(instance, making.kind)) is None:
            return
        held.enter_context(self.used(BackupName(instance.instance_id, former.parent.backup_id)))
        whole = await self._increments.lineage(instance, former)
        if whole is not None:
            making.former, making.former_bytes = former, whole.stream_bytes

    def _add_base(self, made: Manifest) -> None:
        self._increments.add(made)
        if made.wal is not None:
            self.archives.add_base(made.instance_id, made.backup_id, made.wal)

    def _why_late(self, deadline: float) -> str | None:
        if time.monotonic() > deadline:
            return f"it took longer than {self._settings.backup_timeout_s:.0f} s"
        return None

    async def _copy(self, making: "_Making") -> tuple[float, Spec, PackedCopy, Packed | None]:
        """When it began, of what, and what of it is sealed already."""
        instance, progress = making.instance, making.progress
        slot = CopySlot(self._supervisor.pools.copies, self._supervisor.host, instance)
        async with locked_in_turn(instance, slot), login_turns.let_change(instance):
            if (why := instance.why_backup_ends()) is not None:
                raise EngineError(why)
            progress.total_bytes = await in_own_thread(size_bytes, instance.site.data)
            # It is put together with what it builds on when it is verified.
            self.room.take(instance, max(progress.total_bytes, making.former_bytes))
            began, spec = time.time(), instance.record.spec
            login, spool = self._supervisor.login(instance), instance.site.directory / SPOOL
            if not isinstance(instance.driver, PacksSnapshots):
                copied = PackedCopy(await snapshots.copy(instance, login, spool))
                return began, spec, copied, None
            sealed = await in_own_thread(SealedParts, spool)
            output = self._repository.packing(making.name, sealed, progress.add_half)
            try:
                # Its WAL and the instance's lock are held for as long as compressing takes.
                late = partial(self._why_late, making.deadline)
                pack = self._packing(making, instance.driver, login, output)
                copied = await snapshots.copied(instance, pack, spool, late)
                return began, spec, copied, Packed(sealed, output.finished())
            finally:
                await in_own_thread(output.close)

    def _packing(
        self, making: "_Making", driver: PacksSnapshots, login: Login, output: ArchiveOutput
    ) -> Callable[[Process | None], Awaitable[PackedCopy]]:
        """How its files are put into one archive: all of them, or what has changed."""
        site, former = making.instance.site, making.former
        data_bytes = making.progress.total_bytes
        may_build = self._increments.may_build(making.instance, making.kind, data_bytes)
        if may_build and isinstance(driver, PacksIncrements):
            copied = None if former is None else former.copied
            return partial(driver.pack_since, site, output=output, former=copied)

        async def pack(process: Process | None) -> PackedCopy:
            return PackedCopy(await driver.pack(site, process, login, output))

        return pack

    async def _write(
        self, making: "_Making", copied: Snapshot, packed: Packed | None
    ) -> StoredContent:
        """Without the instance's lock: whatever else is asked of it waits for no store."""
        instance, progress = making.instance, making.progress
        spool = instance.site.directory / SPOOL

        def why_ends() -> str | None:
            return self._why_late(making.deadline) or instance.why_backup_ends()

        slot = CopySlot(self._supervisor.pools.copies, self._supervisor.host, instance)
        async with bounds.in_turn_unlocked(instance, slot):
            with budget.limit(copied.size_bytes, ended=why_ends):
                if packed is not None:
                    await self._repository.upload(making.name, packed, progress.add_half)
                    return packed.content
                progress.begin("copying", copied.size_bytes)
                return await self._repository.write(making.name, spool, progress.add)

    async def complete(self, instance: HostedInstance) -> list[Manifest]:
        """The complete ones, oldest first."""
        with told("the backups cannot be listed"):
            return await self._repository.complete(instance.instance_id)

    async def take_over(self, instance_id: str, known: Collection[str]) -> list[Manifest]:
        """The complete ones of an instance whose data is not here, oldest first.

        `known` are the digests of manifests that the control plane has heard of before.
        """
        instance = self._supervisor.instances.get(instance_id)
        if instance is None and self._layout.site(instance_id, 0).directory.exists():
            raise Conflict("the cell has a folder of the instance that it does not know")
        if instance is not None and not instance.data_lost:
            raise Conflict("the cell has the data of the instance")
        with told("the backups cannot be taken over"):
            found = await self._repository.take_over(instance_id, known)
        for each in found:
            # Those that are newer than what this cell knows.
            self._add_base(each)
        return found

    async def drop(self, instance: HostedInstance, asked: Collection[str]) -> list[str]:
        """All but what others build on that stay. Answers which these are.

        Conflict where one of them is being made or restored.
        """
        backup_ids = self._increments.removable(instance, asked)
        names = [BackupName(instance.instance_id, each) for each in backup_ids]
        if used := [name.backup_id for name in names if self._in_use[name]]:
            raise Conflict(f"the backup {used[0]} is being made or restored")
        # Before anything is awaited: what is made from now on builds on none of them.
        self._increments.forget(backup_ids)
        with told("the backups were not removed"), contextlib.ExitStack() as stack:
            for name in names:
                stack.enter_context(self.used(name))
            for name in names:
                await self._repository.remove(name)
            self.archives.drop_bases(backup_ids)
            self._increments.dropped(backup_ids)
            for name in names:
                # Last: a second store that is away keeps nothing from being removed from the first.
                await self._copies.remove(instance, name)
                self._log("cell.backup_dropped", name)
            if not instance.backups_lock.locked():
                # Else the sweep does it: what is being made may be continued by what is there.
                async with instance.backups_lock:
                    await self.archives.trim(instance.instance_id)
        return backup_ids

    async def erase(self, instance: HostedInstance) -> None:
        """Of an instance that is erased: all its backups and their key."""
        # What is being made or restored ends soon, as the instance is erased.
        async with instance.backups_lock:
            with told("the backups were not removed"):
                await self.archives.settle(instance)
                if instance.has_backup_key:
                    await self._repository.remove_all(instance.instance_id)
                    await self._copies.erase(instance)
                    # Last: without it nothing can be read, and nobody looks for it any more.
                    self._repository.keys.erase(instance.instance_id)
                self.archives.erase(instance.instance_id)
                self._increments.erase(instance.instance_id)
            instance.has_backup_key = False

    async def sweep(self) -> None:
        """Removes what a killed cell left half made in the store."""
        for instance in list(self._supervisor.instances.values()):
            if not instance.has_backup_key or instance.backups_lock.locked():
                continue
            async with instance.backups_lock:
                try:
                    for name in await self._repository.incomplete(instance.instance_id):
                        await self._repository.remove(name)
                        self._log("cell.backup_abandoned", name)
                except StoreError as error:
                    log.warning("cell.backups_not_swept", reason=str(error))
                    return

    @contextlib.contextmanager
    def used(self, name: BackupName) -> Iterator[None]:
        """It is not removed within."""
        self._in_use[name] += 1
        try:
            yield
        finally:
            self._in_use[name] -= 1
            if not self._in_use[name]:
                del self._in_use[name]

    @staticmethod
    def _log(event: str, name: BackupName, **more: object) -> None:
        log.info(event, instance_id=name.instance_id, backup_id=name.backup_id, **more)


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """What went wrong within as a 503, for whoever asked."""
    try:
        yield
    except FAILURES as error:
        reason = str(error)
        log.warning("cell.backups_failed", what=what, reason=reason)
        raise Unavailable(f"{what}: {for_owner(reason)}", headers=RETRY_AFTER) from error
