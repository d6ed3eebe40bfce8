"""`menagerie recover`: a home that starts, made of a backup of the installation."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cell.backups.manifest import BackupName
from cell.backups.sealed_objects import DamagedError
from cell.backups.store import SCHEMES, ReadsObjects, Store, StoreError
from cell.database import Database as CellDatabase
from cell.instances.lost_data import LostData
from cell.runtime import disks
from control.work import queue
from control.workflows.data import recovery
from control.workflows.instances import findings
from menagerie import home as homes
from menagerie.errors import SettingsError
from menagerie.recovery import archives, databases, report, state
from menagerie.recovery.passphrases import PassphraseError
from menagerie.recovery.report import RecoveryReport
from menagerie.recovery.sealed_file import opened
from menagerie.settings import Settings, load
from storage.database import Database
from storage.errors import SchemaUnknown
from storage.instances import instances
from storage.instances.instances import GONE

_WORK: Final = ".recovering"
# What a new file system has by itself.
_NOTHING: Final = frozenset({_WORK, "lost+found"})
# Only a home that has all else has this: without it, `serve` would make another owner.
_LAST: Final = "endpoints.json"
_FORGOTTEN: Final = ("answers", "leases", "console_sessions")
"""Tables of the cell: what was done to data that is lost is not done."""


def check_home(root: Path) -> None:
    """Raises SettingsError unless there is nothing in it."""
    if not root.exists():
        return
    if not root.is_dir():
        raise SettingsError(f"{root} is not a folder: choose another home with --home")
    if found := sorted({path.name for path in root.iterdir()} - _NOTHING):
        more = ", …" if len(found) > 1 else ""
        raise SettingsError(
            f"the home {root} is not empty ({found[0]}{more}): recover into another folder with"
            " --home, or, if nothing in it is needed any more, move it away first"
        )


def recover(
    root: Path,
    source: str,
    backup_id: str | None,
    passphrase: str,
    *,
    keep_database: bool,
    is_second: bool = False,
) -> RecoveryReport:
    """Raises SettingsError, and leaves an empty home then.

    `is_second`: the source is the second store, with the credentials of that.
    """
    check_home(root)
    homes.prepare(root)
    with _alone(root), _work(root) as work, _told(source):
        with _objects(source, backup_id, is_second=is_second) as (objects, name):
            archives.unpack(objects, name, passphrase, work / "archive")
        contents = state.StateContents.read(work / "archive")
        state.check(work / "archive")
        settings = _settings(work / "archive" / state.HOME, root)
        told = {
            "made_at": contents.made_at,
            "version": contents.version,
            "former_store_url": contents.store_url,
            "source": source,
        }
        found = _put_together(settings, work / "archive", told, keep_database=keep_database)
        _move(work / "archive" / state.HOME, root)
        return found


def _settings(recovered: Path, root: Path) -> Settings:
    """As the recovered home has them."""
    return load(home=recovered).model_copy(update={"home": root})


def _put_together(
    settings: Settings, archive: Path, told: Mapping[str, str], *, keep_database: bool
) -> RecoveryReport:
    home = archive / state.HOME
    if keep_database:
        databases.check_kept(settings)
    else:
        databases.check_empty(settings)
        databases.put_back(settings, archive, home)
    database = Database(_where(settings, home))
    try:
        # At once, so that nothing is moved where a newer version had it.
        database.migrate()
        found = report.look(settings, database, **told)
        lost = _note_lost_data(home / state.CELL_DATABASE, found)
        _begin(database, found, lost)
    finally:
        database.dispose()
    return found


def _where(settings: Settings, home: Path) -> str:
    """The database, before the home is moved to its place."""
    inside = settings.root / "menagerie.db"
    return settings.database.replace(str(inside), str(home / "menagerie.db"), 1)


def _note_lost_data(path: Path, found: RecoveryReport) -> set[str]:
    """Of every instance of the cell, but those that had none and are to be created again."""
    if not path.exists():
        return set()
    new = {each.instance_id for each in found.instances if not (each.is_ready or each.backup)}
    if found.store_fault is not None:
        new = set()
    database = CellDatabase(path)
    try:
        rows = database.rows("SELECT instance_id FROM instances WHERE desired != 'erased'")
        lost = {instance_id for (instance_id,) in rows} - new
        LostData(database).note(sorted(lost))
        for instance_id in new:
            database.write("DELETE FROM instances WHERE instance_id = ?", instance_id)
        for table in _FORGOTTEN:
            database.write(f"DELETE FROM {table}")  # noqa: S608 -- one of the tables above
        database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        return lost
    finally:
        database.close()


def _begin(database: Database, found: RecoveryReport, lost: Collection[str]) -> None:
    """Whoever asks first hears that they are being restored, and not that they run.

    What has work under way gets there once its cell has refused that.
    """
    with database.write() as db:
        for each in found.instances:
            if each.instance_id not in lost or queue.is_open(db, each.instance_id):
                continue
            instance = instances.fetch(db, each.org_id, each.instance_id, lock=True)
            if instance.status in findings.SETTLED and each.wanted not in GONE:
                recovery.begin(db, instance)


def _move(recovered: Path, root: Path) -> None:
    names = sorted((path.name for path in recovered.iterdir()), key=lambda name: name == _LAST)
    for path in (recovered, *recovered.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o644 if path.suffix == ".pem" else 0o600)
    disks.synchronise(recovered)
    for name in names:
        (recovered / name).rename(root / name)
    disks.synchronise(root)


@contextlib.contextmanager
def _objects(
    source: str, backup_id: str | None, *, is_second: bool
) -> Iterator[tuple[ReadsObjects, BackupName]]:
    """Of a store by its URL, or of a file."""
    if urlsplit(source).scheme in SCHEMES:
        store = Store(source, is_second=is_second)
        yield store, archives.newest(archives.in_store(store), backup_id)
        return
    with opened(Path(source)) as file:
        yield file, archives.only(file.names)


@contextlib.contextmanager
def _told(source: str) -> Iterator[None]:
    try:
        yield
    except (PassphraseError, DamagedError, StoreError, SchemaUnknown) as error:
        why = error.detail if isinstance(error, SchemaUnknown) else str(error)
        raise SettingsError(f"{source} cannot be recovered: {why}") from error
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise SettingsError(f"{source} cannot be recovered: {why}") from error


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise SettingsError(f"another `menagerie recover` is running on {root}") from error
    finally:
        os.close(folder)


@contextlib.contextmanager
def _work(root: Path) -> Iterator[Path]:
    """A folder for what is not the home's yet; one that was killed may have left it."""
    work = root / _WORK
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(mode=0o700)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
