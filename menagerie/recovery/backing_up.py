"""`menagerie backup`: the state of the installation into a file or the store, read back there."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from cell.backups.manifest import BackupName, Kind
from cell.backups.sealed_objects import DamagedError
from cell.backups.store import Store, StoreError
from menagerie.errors import SettingsError
from menagerie.recovery import archives, last_made, state
from menagerie.recovery.archives import ArchiveKey, made_at
from menagerie.recovery.report import stores_of
from menagerie.recovery.sealed_file import NewSealedFile, opened
from menagerie.settings import Settings

KEPT_NEWEST: Final = 12
KEPT_DAYS: Final = 14
CLOCKS_DIFFER: Final = timedelta(days=1)
_SPOOL: Final = ".backup-"
_LOCK: Final = "backup.lock"


@dataclass(frozen=True)
class MadeBackup:
    """`where` it is, for a person."""

    backup_id: str
    where: str
    made_at: str
    stored_bytes: int


def into_file(settings: Settings, target: Path, passphrase: str, *, force: bool) -> MadeBackup:
    """Raises SettingsError."""
    if target.is_dir() or not target.parent.is_dir():
        raise SettingsError(f"{target} must be a file in a folder that exists")
    if target.exists() and not force:
        raise SettingsError(f"{target} exists: choose another file, or pass --force")
    with _collected(settings) as (folder, contents), NewSealedFile(target) as file:
        name, key = archives.new_name(contents.cell_id), ArchiveKey.new(passphrase)
        made, sealed = archives.write(file, name, folder, key, "manual")
        file.put(name.manifest, sealed)
        with opened(file.draft) as written:
            archives.check(written, made, key)
        file.publish()
    stored = archives.committed(made, sealed).stored_bytes
    return MadeBackup(name.backup_id, str(target), contents.made_at, stored)


def into_store(settings: Settings, passphrase: str, kind: Kind) -> MadeBackup:
    """And remove those of this installation that are kept no longer. Raises SettingsError.

    Also into the second store, if there is one: whichever is away, the other one gets it.
    """
    stores = stores_of(settings)
    faults: list[StoreError | DamagedError] = []
    stored = 0
    with _collected(settings) as (folder, contents):
        name, key = archives.new_name(contents.cell_id), ArchiveKey.new(passphrase)
        for store in filter(None, (stores.first, stores.second)):
            try:
                stored = _write(store, name, folder, key, kind)
            except (StoreError, DamagedError) as error:
                faults.append(error)
                continue
            if store is stores.first:
                last_made.note(settings.root, name.backup_id, settings.backup_store)
            _thin_out(store, contents.cell_id, name)
        if faults:
            raise faults[0]
    return MadeBackup(name.backup_id, settings.backup_store, contents.made_at, stored)


def _write(store: Store, name: BackupName, folder: Path, key: ArchiveKey, kind: Kind) -> int:
    """How many bytes it takes there. Raises StoreError or DamagedError, and leaves nothing."""
    try:
        made, sealed = archives.write(store, name, folder, key, kind)
        archives.check(store, made, key)
        store.settle()
        store.create(name.manifest, sealed)
        store.settle()
    except BaseException:
        with contextlib.suppress(StoreError):
            store.remove_all(name.prefix)
        raise
    return archives.committed(made, sealed).stored_bytes


@contextlib.contextmanager
def _collected(settings: Settings) -> Iterator[tuple[Path, state.StateContents]]:
    """The state in a folder of the home, which is gone afterwards; one at a time."""
    root = settings.root
    if not (root / "keys" / "cell.id").exists():
        raise SettingsError(
            f"{root} is not the home of an installation: pass the one that `serve` has, with --home"
        )
    with _alone(root):
        for left in root.glob(f"{_SPOOL}*"):
            shutil.rmtree(left)
        folder = Path(tempfile.mkdtemp(prefix=_SPOOL, dir=root))
        try:
            yield folder, state.collect(settings, folder)
        except DamagedError as error:
            raise SettingsError(f"the backup cannot be read back: {error}") from error
        except StoreError as error:
            raise SettingsError(str(error)) from error
        except OSError as error:
            why = error.strerror or str(error)
            raise SettingsError(f"the backup cannot be written: {why}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Others wait: a backup takes seconds."""
    lock = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _thin_out(store: Store, cell_id: str, made: BackupName) -> None:
    """A backup that is there is worth more than one that is not removed: what fails is left."""
    # One that is later than what was made now is none of ours; all others would count as old.
    latest = made_at(made) + CLOCKS_DIFFER
    with contextlib.suppress(StoreError):
        found = [each for each in archives.in_store(store, cell_id) if made_at(each) <= latest]
        for name in superfluous(found):
            store.remove([name.manifest])
            store.remove_all(name.prefix)


def superfluous(found: list[BackupName]) -> list[BackupName]:
    """All but the newest few, and the last one of each of some days before the newest.

    `found`: oldest first.
    """
    if len(found) <= KEPT_NEWEST:
        return []
    kept = set(found[-KEPT_NEWEST:])
    last_of_day = {made_at(each).date(): each for each in found}
    first = (made_at(found[-1]) - timedelta(days=KEPT_DAYS)).date()
    kept |= {each for day, each in last_of_day.items() if day > first}
    return [each for each in found if each not in kept]
