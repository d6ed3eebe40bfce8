"""Objects of backups and of archived WAL, copied into the second store as they are.

Nothing is copied that is not what was written, and what was copied is read back. All of it blocks,
and raises StoreError or DamagedError.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final

from cell.backups import writing
from cell.backups.manifest import (
    MANIFEST,
    MANIFEST_BYTES_MAX,
    BackupName,
    Manifest,
    Part,
    is_backup_id,
)
from cell.backups.reading import sealed_manifest, sealed_part
from cell.backups.sealed_objects import DamagedError
from cell.backups.store import MissingError, Store, StoreError
from cell.backups.two_stores import TwoStores
from cell.backups.wal_names import FOLDER, is_chain_id
from cell.backups.wal_store import SEALED_BYTES_MAX, opened

UNFINISHED: Final = "#"
_OF_BACKUP: Final = 3
_OF_WAL: Final = 4


@dataclass
class Listing:
    """What a store has of an instance. Of backups: all of which there is something, and complete.

    `wal`: by chain, the names of its objects. `unfinished`: what a writer that was killed had not
    finished, as a folder names it.
    """

    begun: set[str] = field(default_factory=set)
    complete: set[str] = field(default_factory=set)
    wal: dict[str, set[str]] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.begun and not self.wal


class Copying:
    """Between the two stores."""

    def __init__(self, first: Store, second: Store) -> None:
        self.first = first
        self.second = second

    @classmethod
    def between(cls, stores: TwoStores) -> "Copying | None":
        return None if stores.second is None else cls(stores.first, stores.second)

    def listings(self, instance_id: str) -> tuple[Listing, Listing]:
        """Of the first and of the second. The latter is listed first, as nothing new lacks then."""
        second = listing(self.second, instance_id)
        return listing(self.first, instance_id), second

    def manifest(self, key: bytes, name: BackupName) -> Manifest | None:
        """None where the backup is gone meanwhile."""
        try:
            return Manifest.unseal(key, name, sealed_manifest(self.first, name))
        except MissingError:
            return None

    def copy_part(self, name: BackupName, number: int, part: Part, *, may_be_there: bool) -> None:
        if may_be_there and self._has_part(name, number, part):
            return
        sealed = sealed_part(self.first, name, number, part)
        self._put(name.part(number), sealed)

    def _has_part(self, name: BackupName, number: int, part: Part) -> bool:
        try:
            sealed_part(self.second, name, number, part)
        except DamagedError:
            return False
        return True

    def copy_manifest(self, found: Manifest) -> bool:
        """After all parts: from now on the copy counts. False where the backup is gone."""
        self.second.settle()
        try:
            sealed = self.first.get(found.name.manifest, MANIFEST_BYTES_MAX)
        except MissingError:
            return False
        if hashlib.sha256(sealed).hexdigest() != found.stored_sha256:
            raise DamagedError("the manifest has changed while the backup was being copied")
        self._put(found.name.manifest, sealed)
        self.second.settle()
        return True

    def copy_wal(self, key: bytes, path: str) -> int | None:
        """How many bytes of WAL it has; None where it is there no longer, as one that filled."""
        try:
            sealed = self.first.get(path, SEALED_BYTES_MAX)
        except MissingError:
            return None
        content = opened(key, path, sealed)
        self._put(path, sealed)
        return len(content)

    def _put(self, path: str, sealed: bytes) -> None:
        self.second.put(path, sealed)
        if self.second.get(path, len(sealed)) != sealed:
            raise StoreError("the second store of backups gives back something else than was given")

    def remove(self, name: BackupName) -> None:
        """The copy of a backup."""
        writing.remove(self.second, name)


def listing(store: Store, instance_id: str) -> Listing:
    found = Listing()
    for each in store.list(f"{instance_id}/"):
        parts = each.name.split("/")
        if UNFINISHED in parts[-1]:
            found.unfinished.append(each.name)
        elif len(parts) == _OF_WAL and parts[1] == FOLDER and is_chain_id(parts[2]):
            found.wal.setdefault(parts[2], set()).add(parts[3])
        elif len(parts) == _OF_BACKUP and is_backup_id(parts[1]):
            found.begun.add(parts[1])
            if parts[2] == MANIFEST:
                found.complete.add(parts[1])
    return found
