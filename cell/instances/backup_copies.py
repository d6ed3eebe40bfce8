"""Backups and archived WAL, copied into the second store in the background.

What is to be copied follows from what the two stores have and from the cell's database: a cell that
was killed goes on where it was.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import structlog

from cell.backups.manifest import BackupName, Manifest
from cell.backups.object_copies import Copying, Listing
from cell.backups.repository import Repository
from cell.backups.sealed_objects import DamagedError
from cell.backups.store import StoreError
from cell.instances.copied import Copied
from cell.instances.hosted import HostedInstance
from cell.instances.pools import owner_of
from cell.instances.reasons import for_owner
from cell.instances.supervisor import Supervisor
from cell.instances.wal_chains import WalChains
from cell.instances.wal_copies import WalCopies
from cell.runtime.own_threads import in_background_thread, in_own_thread
from cell.settings import CellSettings
from cell.timestamps import moment
from specserver import Problem

log = structlog.get_logger("cell.copies")

FAILURES: Final = (StoreError, DamagedError, OSError, Problem)


class EndedError(Exception):
    """The instance is being erased, or its copies are not wanted any more."""


@dataclass
class _Work:
    """Of one kind for one instance. Times are monotonic."""

    task: asyncio.Task[None] | None = None
    due_at: float = 0.0
    check_at: float = 0.0
    failures: int = 0
    failing_since: float | None = None
    reason: str | None = None

    @property
    def is_idle(self) -> bool:
        return self.task is None or self.task.done()


@dataclass
class _State:
    """`lock` is held while anything of the instance in the second store is changed."""

    backups: _Work = field(default_factory=_Work)
    wal: _Work = field(default_factory=_Work)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    has_looked: bool = False
    was_wanted: bool = False


class BackupCopies:
    def __init__(
        self,
        settings: CellSettings,
        supervisor: Supervisor,
        repository: Repository,
        chains: WalChains,
        copied: Copied,
    ) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._repository = repository
        self._copying = Copying.between(repository.stores)
        self.copied = copied
        self._wal: WalCopies | None = None
        if self._copying is not None:
            self._wal = WalCopies(self._copying, repository.keys, chains, copied)
        self._states: dict[str, _State] = {}
        # While a store is away, nobody's objects are tried.
        self._rest_until = 0.0
        self._store_failures = 0

    def _state(self, instance: HostedInstance) -> _State:
        return self._states.setdefault(instance.instance_id, _State())

    @property
    def has_store(self) -> bool:
        return self._copying is not None

    def watch(self, instance: HostedInstance) -> None:
        """What is told of it tells of copies from now on."""
        if self._copying is not None:
            instance.copies = partial(self._observation, instance)

    def tick(self) -> None:
        """Begins what is due."""
        known = self._supervisor.instances
        if self._copying is None:
            return
        for gone in [each for each in self._states if each not in known]:
            del self._states[gone]
        for instance in list(known.values()):
            self.watch(instance)
            state = self._state(instance)
            if state.was_wanted != instance.record.spec.backups_copied:
                state.was_wanted = instance.record.spec.backups_copied
                self.changed(instance)
            for work, act in ((state.backups, self._copy_backups), (state.wal, self._copy_wal)):
                if self._is_due(instance, work):
                    work.task = self._supervisor.spawn(self._run(instance, work, act))

    def _is_due(self, instance: HostedInstance, work: _Work) -> bool:
        now = time.monotonic()
        if not instance.has_backup_key or instance.record.desired == "erased":
            return False
        return work.is_idle and now >= max(work.due_at, self._rest_until)

    def changed(self, instance: HostedInstance) -> None:
        """There is a backup more, or copies are wanted from now on."""
        state = self._state(instance)
        state.has_looked = False
        state.backups.due_at = state.backups.check_at = state.wal.due_at = 0.0

    async def _run(
        self,
        instance: HostedInstance,
        work: _Work,
        act: Callable[[HostedInstance, bool], Awaitable[None]],
    ) -> None:
        settings, began = self._settings, time.monotonic()
        is_check = began >= work.check_at
        # Before it is looked: what changes meanwhile is looked for once more.
        work.check_at = began + settings.backup_copy_check_s if is_check else work.check_at
        work.due_at = began + settings.backup_copy_look_s
        try:
            await act(instance, is_check)
        except EndedError:
            return
        except FAILURES as error:
            self._failed(instance, work, error)
        else:
            work.failures, work.reason, work.failing_since = 0, None, None

    def _failed(self, instance: HostedInstance, work: _Work, error: Exception) -> None:
        if work.reason != str(error):
            log.warning(
                "cell.backup_not_copied", instance_id=instance.instance_id, reason=str(error)
            )
        work.reason = str(error)
        work.failures += 1
        work.failing_since = work.failing_since or time.monotonic()
        work.check_at, work.due_at = 0.0, time.monotonic() + self._rest_s(work.failures)
        if isinstance(error, StoreError):
            self._store_failures += 1
            self._rest_until = time.monotonic() + self._rest_s(self._store_failures)

    def _rest_s(self, failures: int) -> float:
        settings = self._settings
        doubled = settings.backup_copy_retry_s * 2 ** min(failures - 1, 20)
        return float(min(settings.backup_copy_retry_max_s, doubled))

    async def _object(
        self,
        instance: HostedInstance,
        work: Callable[..., Any],
        *given: Any,
        then: Callable[[Any], None] = lambda _: None,
        **named: Any,
    ) -> Any:
        """A place for each object: whoever has much to copy keeps nobody waiting."""
        state, pool = self._state(instance), self._supervisor.pools.second_store
        async with pool.turn(owner_of(instance.record)), state.lock:
            if instance.why_backup_ends() is not None:
                raise EndedError
            found = await in_background_thread(partial(work, *given, **named))
            then(found)
        self._store_failures = 0
        return found

    async def _copy_wal(self, instance: HostedInstance, is_check: bool) -> None:
        """Where none is wanted, what is there is tidied only."""
        assert self._wal is not None
        wanted = instance.record.spec.backups_copied
        if wanted or is_check:
            turn = partial(self._object, instance)
            await self._wal.copy(instance, turn, is_check=is_check, wanted=wanted)

    async def _copy_backups(self, instance: HostedInstance, is_check: bool) -> None:
        if not is_check:
            return
        assert self._copying is not None
        state, instance_id = self._state(instance), instance.instance_id
        first, second = await self._object(instance, self._copying.listings, instance_id)
        copied = self.copied.backups(instance_id)
        for lost in copied.keys() - second.complete:
            self.copied.forget(lost)
        await self._tidy(instance, first, second)
        if not instance.record.spec.backups_copied:
            state.waiting = 0
            return
        there = copied.keys() & second.complete
        left = sorted(first.complete - there, reverse=True)
        state.waiting, state.has_looked = len(left), True
        fault: DamagedError | None = None
        while left:
            if not instance.record.spec.backups_copied:
                return
            try:
                for each in await self._series(instance, left, there):
                    await self._copy(instance, each, may_be_there=each.backup_id in second.begun)
                    there.add(each.backup_id)
                    state.waiting -= 1
            except DamagedError as error:
                # The others are copied all the same.
                fault = fault or error
        if fault is not None:
            raise fault

    async def _series(
        self, instance: HostedInstance, left: list[str], there: Collection[str]
    ) -> list[Manifest]:
        """The first that is left, after those of them that it builds on; they are left no more.

        DamagedError where something would lack of its copy.
        """
        copying, key = self._copying, self._repository.keys.find(instance.instance_id)
        next_id: str | None = left[0]
        found: list[Manifest] = []
        while next_id in left:
            left.remove(next_id)
            name = BackupName(instance.instance_id, next_id)
            manifest = None
            if copying is not None and key is not None:
                manifest = await self._object(instance, copying.manifest, key, name)
            if manifest is None:
                break
            found.insert(0, manifest)
            next_id = None if manifest.parent is None else manifest.parent.backup_id
        if found and next_id is not None and next_id not in there:
            raise DamagedError(f"the backup {next_id}, which others build on, cannot be copied")
        return found

    async def _copy(self, instance: HostedInstance, found: Manifest, *, may_be_there: bool) -> None:
        copying, name = self._copying, found.name
        if copying is None:
            return
        for number, part in enumerate(found.content.parts):
            if not instance.record.spec.backups_copied:
                raise EndedError
            given = (name, number, part)
            await self._object(instance, copying.copy_part, *given, may_be_there=may_be_there)

        def note(is_there: bool) -> None:
            if is_there:
                self.copied.add(name.instance_id, name.backup_id, time.time())

        await self._object(instance, copying.copy_manifest, found, then=note)
        said = {"instance_id": name.instance_id, "backup_id": name.backup_id}
        log.info("cell.backup_copied", **said)

    async def _tidy(self, instance: HostedInstance, first: Listing, second: Listing) -> None:
        """What was left unfinished, and half a copy whose backup is gone.

        The latter not where the first store seems to have lost all.
        """
        assert self._copying is not None
        if second.unfinished:
            await self._object(instance, self._copying.second.remove, second.unfinished)
        if first.is_empty:
            return
        for backup_id in second.begun - second.complete - first.begun:
            name = BackupName(instance.instance_id, backup_id)
            await self._object(instance, self._copying.remove, name)

    async def remove(self, instance: HostedInstance, name: BackupName) -> None:
        """Of a backup that the first store has no more. StoreError while the second is away."""
        if self._copying is not None:
            async with self._state(instance).lock:
                await in_own_thread(self._copying.remove, name)
        self.copied.forget(name.backup_id)

    async def erase(self, instance: HostedInstance) -> None:
        """Everything of the instance. StoreError while the second store is away."""
        if self._copying is not None:
            async with self._state(instance).lock:
                prefix = f"{instance.instance_id}/"
                await in_own_thread(self._copying.second.remove_all, prefix)
        self.copied.erase(instance.instance_id)

    def _observation(self, instance: HostedInstance) -> Mapping[str, Any]:
        state = self._state(instance)
        reason = state.backups.reason or state.wal.reason
        count, newest_at = self.copied.count(instance.instance_id)
        until = self._wal.until(instance) if self._wal is not None else None
        return {
            "wanted": instance.record.spec.backups_copied,
            "status": self._status(instance, state, reason),
            "reason": None if reason is None else for_owner(reason),
            "waiting": state.waiting,
            "copied": count,
            "newest_at": moment(newest_at),
            "restorable_until": moment(until),
        }

    def _status(self, instance: HostedInstance, state: _State, reason: str | None) -> str:
        if not instance.record.spec.backups_copied:
            return "off"
        since = [each.failing_since for each in (state.backups, state.wal) if each.failing_since]
        if since and time.monotonic() - min(since) > self._settings.backup_copy_late_after_s:
            return "late"
        is_current = state.has_looked and not state.waiting and reason is None
        return "current" if is_current or not instance.has_backup_key else "copying"
