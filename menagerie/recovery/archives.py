"""Archives of an installation's state: sealed as backups of instances are, for a passphrase."""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from ulid import ULID

from cell.backups import reading, writing
from cell.backups.manifest import MANIFEST, MANIFEST_BYTES_MAX, BackupName, Kind, Manifest
from cell.backups.sealed_objects import DamagedError, clear_text
from cell.backups.store import ReadsObjects, Store, WritesObjects
from cell.runtime import budget
from menagerie.errors import SettingsError
from menagerie.recovery.passphrases import KeyDerivation

PREFIX: Final = "installation/"
_MANIFEST: Final = re.compile(
    rf"{PREFIX}[0-9A-Za-z_-]+/ibk_[0-7][0-9A-HJKMNP-TV-Z]{{25}}/{MANIFEST}", re.ASCII
)
# What is unpacked of an archive.
BYTES_MAX: Final = 1 << 44


@dataclass(frozen=True)
class ArchiveKey:
    """Of one archive, or of several that are made one after the other."""

    derivation: KeyDerivation
    key: bytes

    @classmethod
    def new(cls, passphrase: str) -> "ArchiveKey":
        return cls(*KeyDerivation.new(passphrase))


def new_name(cell_id: str) -> BackupName:
    """Installations that share a store have their own folders there."""
    return BackupName(f"{PREFIX}{cell_id}", f"ibk_{ULID()}")


def write(
    objects: WritesObjects, name: BackupName, folder: Path, key: ArchiveKey, kind: Kind
) -> tuple[Manifest, bytes]:
    """All but the manifest, which is answered with its object: without it nothing counts.

    Raises StoreError or OSError.
    """
    began = time.time()
    with budget.limit(BYTES_MAX):
        content = writing.write(objects, key.key, name, folder)
    size_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    made = Manifest(
        *(name.instance_id, name.backup_id, kind, "menagerie", version("menagerie")),
        *(size_bytes, began, time.time(), content),
    )
    return made, made.seal(key.key, key.derivation.written())


def check(objects: ReadsObjects, made: Manifest, key: ArchiveKey) -> None:
    """Read all of it back. Raises DamagedError or StoreError."""
    with budget.limit(BYTES_MAX):
        reading.check(objects, key.key, made)


def unpack(objects: ReadsObjects, name: BackupName, passphrase: str, target: Path) -> Manifest:
    """Into the new folder `target`. Raises PassphraseError, DamagedError or StoreError."""
    sealed = objects.get(name.manifest, MANIFEST_BYTES_MAX)
    key = KeyDerivation.parse(clear_text(sealed)).key(passphrase)
    found = Manifest.unseal(key, name, sealed)
    with budget.limit(BYTES_MAX):
        reading.unpack(objects, key, found, target)
    return found


def complete(names: Iterable[str]) -> list[BackupName]:
    """Those that have a manifest, oldest first; other names are somebody else's."""
    found = []
    for each in names:
        if _MANIFEST.fullmatch(each):
            owner, backup_id, _ = each.rsplit("/", 2)
            found.append(BackupName(owner, backup_id))
    return sorted(found, key=lambda one: one.backup_id)


def made_at(name: BackupName) -> datetime:
    """As its name has it."""
    return ULID.from_str(name.backup_id.removeprefix("ibk_")).datetime


def in_store(store: Store, cell_id: str = "") -> list[BackupName]:
    """Of one installation, or of all."""
    prefix = f"{PREFIX}{cell_id}/" if cell_id else PREFIX
    return complete(each.name for each in store.list(prefix))


def newest(found: list[BackupName], backup_id: str | None) -> BackupName:
    """The one that is named, or the newest of the only installation. Raises SettingsError."""
    if backup_id is not None:
        found = [each for each in found if each.backup_id == backup_id]
        if not found:
            raise SettingsError(f"there is no backup {backup_id} of an installation there")
    if not found:
        raise SettingsError("there is no complete backup of an installation there")
    if len({each.instance_id for each in found}) > 1:
        last = {each.instance_id: each.backup_id for each in found}
        told = ", ".join(
            f"{owner.removeprefix(PREFIX)}: {last_id}" for owner, last_id in last.items()
        )
        raise SettingsError(
            "there are backups of several installations; name one with --backup. The newest of"
            f" each: {told}"
        )
    return found[-1]


def only(names: list[str]) -> BackupName:
    """The one of a file. Raises DamagedError."""
    found = complete(names)
    if len(found) != 1:
        raise DamagedError("the file is cut off, or does not have one backup")
    return found[0]


def committed(made: Manifest, sealed: bytes) -> Manifest:
    """As it lies there, with its own length."""
    return replace(made, manifest_bytes=len(sealed))
