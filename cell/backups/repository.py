"""The backups of a cell's instances: a store, and the keys to what is in it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from cell.backups import lineage, reading, sealed_parts, writing
from cell.backups.keys import BackupKeys, Recovery, RecoveryError
from cell.backups.lineage import Lineage
from cell.backups.manifest import (
    MANIFEST,
    MANIFEST_BYTES_MAX,
    BackupName,
    Manifest,
    StoredContent,
    is_backup_id,
)
from cell.backups.sealed_objects import DamagedError, clear_text
from cell.backups.sealed_parts import Packed, SealedParts
from cell.backups.store import MissingError, ReadsObjects, StoreError
from cell.backups.two_stores import TwoStores, attempt
from cell.runtime import pace
from cell.runtime.own_threads import in_own_thread, in_quiet_thread

# <instance id>/<backup id>/<what it is>
OBJECT_PARTS = 3
OPENING = 2
CHUNK_BYTES = 1 << 18

log = structlog.get_logger("cell.backups")


class Repository:
    """Waits for the store on threads of its own. Raises StoreError, and DamagedError on reading."""

    def __init__(self, stores: TwoStores, keys: BackupKeys, recovery: Recovery) -> None:
        self.stores = stores
        self._store = stores.first
        self.keys = keys
        self._recovery = recovery
        # Of what is sent; each takes two parts of memory until it is opened, and one afterwards.
        self._opening = asyncio.Semaphore(OPENING)

    async def find(self, name: BackupName) -> Manifest | None:
        """None where neither store has all of it, as far as that is known."""
        if (key := self.keys.find(name.instance_id)) is None:
            return None
        either = self.stores.reading()
        try:
            found = await in_own_thread(reading.manifest, either, key, name)
        except MissingError:
            return None
        return replace(found, from_copy=either.used_copy)

    async def find_written(self, name: BackupName) -> Manifest | None:
        """The same in the store that backups are written to."""
        if (key := self.keys.find(name.instance_id)) is None:
            return None
        try:
            return await in_own_thread(reading.manifest, self._store, key, name)
        except MissingError:
            return None

    async def complete(self, instance_id: str) -> list[Manifest]:
        """The complete ones, oldest first; one that cannot be opened is left out, and logged.

        So is one that lacks what it builds on.
        """
        if (key := self.keys.find(instance_id)) is None:
            return []
        return await in_own_thread(self._list, key, instance_id)

    def _list(self, key: bytes, instance_id: str) -> list[Manifest]:
        found = []
        for backup_id, is_complete in sorted(self._there(self.stores, instance_id).items()):
            if not is_complete:
                continue
            try:
                name = BackupName(instance_id, backup_id)
                found.append(reading.manifest(self.stores.reading(), key, name))
            except MissingError:
                continue
            except DamagedError as error:
                log.error(  # noqa: TRY400 - one line
                    "cell.backup_damaged",
                    instance_id=instance_id,
                    backup_id=backup_id,
                    reason=str(error),
                )
        there = {(each.backup_id, each.stored_sha256): each for each in found}
        return [each for each in found if self._is_whole(each, there)]

    def _is_whole(self, one: Manifest, there: Mapping[tuple[str, str], Manifest]) -> bool:
        now: Manifest | None = one
        while now is not None and (parent := now.parent) is not None:
            now = there.get((parent.backup_id, parent.sha256))
        if now is None:
            given = {"instance_id": one.instance_id, "backup_id": one.backup_id}
            log.error("cell.backup_damaged", **given, reason="what it builds on is missing")
        return now is not None

    def _there(self, stores: TwoStores, instance_id: str) -> dict[str, bool]:
        """By backup, whether it is complete in one of these."""
        found: dict[str, bool] = {}
        for each in stores.names(f"{instance_id}/"):
            parts = each.split("/")
            if len(parts) != OBJECT_PARTS or not is_backup_id(parts[1]):
                # None of ours.
                continue
            _, backup_id, name = parts
            found[backup_id] = found.get(backup_id, False) or name == MANIFEST
        return found

    async def take_over(self, instance_id: str, known: Collection[str]) -> list[Manifest]:
        """As `complete`; where the key was lost, it is had from a manifest by the recovery key.

        Where some manifests are `known` by their digests, only one of them is believed: whoever
        writes to the store could have put another there. Raises RecoveryError.
        """
        if self.keys.find(instance_id) is None:
            key = await in_own_thread(self._unwrap_newest, instance_id, frozenset(known))
            if key is None:
                return []
            self.keys.adopt(instance_id, key)
            log.warning("cell.backups_taken_over", instance_id=instance_id)
        return await self.complete(instance_id)

    def _unwrap_newest(self, instance_id: str, known: frozenset[str]) -> bytes | None:
        """None where there is no backup at all."""
        refused: Exception | None = None
        there = self._there(self.stores, instance_id)
        for backup_id, is_complete in sorted(there.items(), reverse=True):
            if not is_complete:
                continue
            name = BackupName(instance_id, backup_id)

            def read(one: ReadsObjects, name: BackupName = name) -> bytes:
                return self._unwrap(name, one.get(name.manifest, MANIFEST_BYTES_MAX), known)

            try:
                return attempt(self.stores.reading(), read)
            except (DamagedError, RecoveryError, MissingError) as error:
                refused = refused or error
        if refused is not None:
            raise refused
        return None

    def _unwrap(self, name: BackupName, sealed: bytes, known: frozenset[str]) -> bytes:
        if known and hashlib.sha256(sealed).hexdigest() not in known:
            raise DamagedError("the control plane does not know of the backup")
        key = self._recovery.unwrap(clear_text(sealed))
        Manifest.unseal(key, name, sealed)
        return key

    async def write(
        self, name: BackupName, folder: Path, progress: Callable[[int], None]
    ) -> StoredContent:
        """Counts for nothing before it is committed."""
        key = self.keys.of(name.instance_id)
        return await in_quiet_thread(writing.write, self._store, key, name, folder, progress)

    def packing(
        self, name: BackupName, into: SealedParts, progress: Callable[[int], None]
    ) -> writing.Writing:
        """What an archive is written to that is uploaded afterwards."""
        return writing.Writing(into, self.keys.of(name.instance_id), name, progress)

    async def upload(
        self, name: BackupName, packed: Packed, progress: Callable[[int], None]
    ) -> None:
        """As `write`, of what is sealed already."""
        await in_quiet_thread(sealed_parts.upload, self._store, name, packed, progress)

    async def commit(self, made: Manifest) -> Manifest:
        """From now on it is a backup. Answers it as it is stored."""
        key = self.keys.of(made.instance_id)
        return await in_own_thread(self._commit, made, key)

    def _commit(self, made: Manifest, key: bytes) -> Manifest:
        sealed = made.seal(key, self._recovery.wrap(key))
        self._store.settle()
        if not self._store.create(made.name.manifest, sealed):
            raise StoreError("the store has another backup of that id")
        self._store.settle()
        try:
            return self._read_back(made, key)
        except (StoreError, DamagedError):
            self._store.remove([made.name.manifest])
            raise

    def _read_back(self, made: Manifest, key: bytes) -> Manifest:
        written = reading.manifest(self._store, key, made.name)
        if replace(written, stored_sha256="", manifest_bytes=0) != made:
            raise DamagedError("the store gives back another manifest than it was given")
        return written

    async def check(self, found: Manifest, progress: Callable[[int], None]) -> None:
        """Reads it to the end."""
        key = self.keys.of(found.instance_id)
        await in_quiet_thread(reading.check, self._store, key, found, progress)

    async def lineage(self, found: Manifest) -> Lineage:
        """With all that it builds on, of which the second store may have some."""
        key = self.keys.of(found.instance_id)
        return await in_own_thread(lineage.of, self.stores.reading(), key, found)

    async def lineage_written(self, made: Manifest) -> Lineage:
        """The same from the store that it was written to."""
        return await in_own_thread(lineage.of, self._store, self.keys.of(made.instance_id), made)

    async def unpack(
        self,
        whole: Lineage,
        target: Path,
        progress: Callable[[int], None] = lambda _: None,
        archive: str | None = None,
    ) -> bool:
        """Into the new folder `target`; what an `archive` in it holds, to a folder of its name.

        True where any of it was read from the second store.
        """
        either, key = self.stores.reading(), self.keys.of(whole.newest.instance_id)
        work = partial(lineage.unpack, verified=len(whole.members))
        await in_quiet_thread(work, either, key, whole, target, progress, archive)
        return whole.newest.from_copy or either.used_copy

    async def unpack_written(
        self, whole: Lineage, target: Path, progress: Callable[[int], None], archive: str | None
    ) -> None:
        """The same from the store that it was written to, to see whether that has it."""
        key = self.keys.of(whole.newest.instance_id)
        work = partial(lineage.unpack, verified=len(whole.members) - 1)
        await in_quiet_thread(work, self._store, key, whole, target, progress, archive)

    async def archive(self, found: Manifest) -> AsyncIterator[bytes]:
        """As it was compressed; nothing of a part is given before all of that was checked."""
        key, own = self.keys.of(found.instance_id), pace.Pace()
        own.slow = True
        parts = reading.parts(self.stores.reading(), key, found)
        try:
            while True:
                async with self._opening:
                    part = await in_own_thread(_next, parts, own)
                if part is None:
                    return
                for start in range(0, len(part), CHUNK_BYTES):
                    yield bytes(part[start : start + CHUNK_BYTES])
        finally:
            own.end()

    async def remove(self, name: BackupName) -> None:
        """From the store that backups are written to."""
        await in_own_thread(writing.remove, self._store, name)

    async def incomplete(self, instance_id: str) -> list[BackupName]:
        """Those of which there are parts and no manifest."""
        there = await in_own_thread(self._there, TwoStores(self._store), instance_id)
        return [BackupName(instance_id, each) for each, complete in there.items() if not complete]

    async def remove_all(self, instance_id: str) -> None:
        """Everything of the instance in the store that backups are written to."""
        await in_own_thread(self._store.remove_all, f"{instance_id}/")


def _next(parts: Iterator[bytearray], own: pace.Pace) -> memoryview | None:
    pace.keep(own)
    part = next(parts, None)
    return None if part is None else memoryview(part)
