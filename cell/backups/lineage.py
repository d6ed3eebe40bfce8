"""A backup with all that it builds on: an incremental one has only what has changed since another.

Each manifest has the digest of the one before it: none of them can be exchanged, left out or put
into a circle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cell.backups import reading
from cell.backups.manifest import BackupName, Manifest, Parent
from cell.backups.sealed_objects import DamagedError
from cell.backups.store import MissingError, ReadsObjects
from cell.backups.two_stores import EitherStore, attempt

LENGTH_MAX: Final = 200
"""More than the settings allow; whoever has the key could seal any number."""


@dataclass(frozen=True)
class Lineage:
    """Oldest first: a full backup, and then what builds on the one before."""

    members: tuple[Manifest, ...]

    @property
    def newest(self) -> Manifest:
        return self.members[-1]

    @property
    def stream_bytes(self) -> int:
        """Of all of them; no more is written to put it together."""
        return sum(each.content.stream_bytes for each in self.members)


def of(store: ReadsObjects | EitherStore, key: bytes, newest: Manifest) -> Lineage:
    """Raises DamagedError with the backup that is missing or another, or StoreError."""
    members = [newest]
    while (parent := members[0].parent) is not None:
        if len(members) == LENGTH_MAX:
            raise DamagedError(f"it builds on more than {LENGTH_MAX} others")
        members.insert(0, _parent(store, key, members[0], parent))
    return Lineage(tuple(members))


def _parent(
    store: ReadsObjects | EitherStore, key: bytes, child: Manifest, parent: Parent
) -> Manifest:
    name = BackupName(child.instance_id, parent.backup_id)

    def read(one: ReadsObjects) -> Manifest:
        found = Manifest.unseal(key, name, reading.sealed_manifest(one, name))
        if found.stored_sha256 != parent.sha256:
            raise DamagedError("it is another one")
        return found

    told = f"the backup {parent.backup_id}, which it builds on,"
    try:
        found = attempt(store, read)
    except MissingError as error:
        raise DamagedError(f"{told} is missing") from error
    except DamagedError as error:
        raise DamagedError(f"{told} is damaged: {error}") from error
    if (found.engine, found.engine_version) != (child.engine, child.engine_version):
        raise DamagedError(f"{told} is of {found.engine} {found.engine_version}")
    return found


def unpack(
    store: ReadsObjects | EitherStore,
    key: bytes,
    whole: Lineage,
    target: Path,
    progress: Callable[[int], None] = lambda _: None,
    archive: str | None = None,
    *,
    verified: int = 0,
) -> None:
    """Into the new folder `target`: the oldest one, and onto it one after the other.

    As `reading.unpack`; so many of them, the oldest, were `verified` when they were made.
    """
    for number, each in enumerate(whole.members):
        is_verified = number < verified
        try:
            if number == 0:
                given = (store, key, each, target, progress, archive)
                reading.unpack(*given, verified=is_verified)
            else:
                reading.unpack_onto(store, key, each, target, progress, verified=is_verified)
        except DamagedError as error:
            if each == whole.newest:
                raise
            told = f"the backup {each.backup_id}, which it builds on, is damaged: {error}"
            raise DamagedError(told) from error
