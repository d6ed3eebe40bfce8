"""Where published heads of the audit log are kept: a folder of the home, and the backup store."""

import fcntl
import os
from collections.abc import Collection, Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from control.events.audit_records import hash_of
from control.workflows.events.audit_publishing import KeepsRecords, KeepsRecordsError
from menagerie import keys
from menagerie.settings import Settings
from storage.events.audit_publications import AuditPublication

if TYPE_CHECKING:  # slow to import, and few installations name a store
    from cell.backups.store import Store

FOLDER: Final = "audit-log"
_LOCK: Final = ".lock"
_SUFFIX: Final = ".ndjson"
_OF_STORE: Final = ".json"
_CHUNK_BYTES: Final = 1 << 16


def places_of(settings: Settings) -> tuple[KeepsRecords, ...]:
    """The store only where the operator named one: its default is in the home as well."""
    folder = LogFolder(settings.root / FOLDER)
    if not settings.backup_store_url:
        return (folder,)
    from cell.backups.store import Store  # noqa: PLC0415 -- see above

    prefix = f"{FOLDER}/{keys.cell_id(settings.root)}/"
    return (folder, LogInStore(Store(settings.backup_store_url), prefix))


class LogFolder:
    """A file a month, which lines are added to; never an earlier one than the last."""

    def __init__(self, folder: Path) -> None:
        self.title = str(folder)
        self._folder = folder

    def keep(self, newest_first: Iterable[AuditPublication]) -> int:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if self._folder.is_symlink():
                raise KeepsRecordsError("it is a symbolic link: put the folder in its place")
            lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                known = {
                    hash_of(line) for file in _files(self._folder)[-2:] for line in _lines(file)
                }
                missing = _missing(newest_first, known)
                for record in missing:
                    self._append(record)
            finally:
                os.close(lock)
        except OSError as error:
            raise KeepsRecordsError(error.strerror or str(error)) from error
        return len(missing)

    def _append(self, record: AuditPublication) -> None:
        name = f"{record.published_at.year:04}-{record.published_at:%m}{_SUFFIX}"
        path = max([self._folder / name, *_files(self._folder)[-1:]])
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            # What a process that was killed began to write is no record.
            os.ftruncate(descriptor, _end_of_lines(file))
            file.write(record.line.encode() + b"\n")
            file.flush()
            os.fsync(descriptor)


class LogInStore:
    """An object for each record, which is created and never written again."""

    def __init__(self, store: "Store", prefix: str) -> None:
        self.title = "the store of backups"
        self._store = store
        self._prefix = prefix

    def keep(self, newest_first: Iterable[AuditPublication]) -> int:
        from cell.backups.store import StoreError  # noqa: PLC0415 -- see above

        try:
            names = [each.name.rpartition("/")[2] for each in self._store.list(self._prefix)]
            known = {name.removesuffix(_OF_STORE).partition("-")[2] for name in names}
            missing = _missing(newest_first, known)
            for record in missing:
                name = f"{self._prefix}{record.number:09}-{record.hash}{_OF_STORE}"
                self._store.create(name, record.line.encode())
            if missing:
                self._store.settle()
        except StoreError as error:
            raise KeepsRecordsError(str(error)) from error
        return len(missing)


def lines_in(path: Path) -> Iterator[str]:
    """Of a file, or of the files of a folder, in the order in which they were written."""
    for file in _files(path) if path.is_dir() else [path]:
        yield from _lines(file)


def _files(folder: Path) -> list[Path]:
    """Those of months, or of a store; whatever else lies there is no part of the log."""
    return sorted(each for each in folder.iterdir() if each.suffix in {_SUFFIX, _OF_STORE})


def _end_of_lines(file: BinaryIO) -> int:
    """How long it is up to its last newline; from its end, as it can be large."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - _CHUNK_BYTES)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _lines(file: Path) -> Iterator[str]:
    with file.open(encoding="utf-8", errors="replace") as opened:
        yield from (line.rstrip("\n") for line in opened if line.strip())


def _missing(
    newest_first: Iterable[AuditPublication], known: Collection[str]
) -> list[AuditPublication]:
    return list(takewhile(lambda each: each.hash not in known, newest_first))[::-1]
