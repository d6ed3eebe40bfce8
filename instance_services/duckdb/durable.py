"""Owns changes of the catalog until they can survive a crash.

The engine cannot replay all that it writes to its log: an ALTER with a function in it, or a table
with a type that was made in the same log, keeps a database from being opened ever again. So the log
is emptied into the database file before such a request and after it, before it is answered. A crash
in between leaves a log that holds nothing but that request, and a file that says so: whoever opens
the database may then go without that log, and loses nothing that was acknowledged.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

import duckdb

from instance_services.duckdb import catalog
from instance_services.duckdb.allowance import log_of, size

# What a checkpoint needs beside the contents of the log.
_SPARE_BYTES = 2**20


class NoRoom(Exception):  # noqa: N818 - an answer to the client and not a fault
    """The disk has no room for the change and the checkpoint after it."""


class Unacknowledged:
    """The file beside the database that says that its log holds only what nobody was told of."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(f"{database.name}.unacknowledged")

    @property
    def is_set(self) -> bool:
        return self.path.is_file()

    def set(self) -> None:
        os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        sync_folder(self.path.parent)

    def clear(self) -> None:
        if self.is_set:
            self.path.unlink()
            # Else it might be back after a power cut, beside a log that has been acknowledged.
            sync_folder(self.path.parent)


class Changes:
    """Brackets requests that change the catalog; of one connection, on its thread."""

    def __init__(self, connection: Any, database: Path) -> None:
        self._connection = connection
        self._log = log_of(database)
        self._unacknowledged = Unacknowledged(database)
        self._checkpoint = f"CHECKPOINT {catalog.quoted(catalog.database(connection))}"
        self._begun = False

    def begin(self) -> None:
        """To be called before the first statement; NoRoom or duckdb.Error, and it must not run."""
        log_bytes = size(self._log)
        found = os.statvfs(self._log.parent)
        # A checkpoint that fails for want of room breaks the engine.
        if found.f_bavail * found.f_frsize < log_bytes + _SPARE_BYTES:
            raise NoRoom
        if log_bytes:
            self._connection.execute(self._checkpoint)
        if size(self._log) == 0:
            self._unacknowledged.set()
        self._begun = True

    def end(self) -> None:
        """To be called before the answer, whatever became of the statements.

        May raise duckdb.Error or OSError; the engine must answer nothing more then.
        """
        if not self._begun:
            return
        self._begun = False
        if size(self._log):
            self._write()
        self._unacknowledged.clear()

    def _write(self) -> None:
        while True:
            # An interrupt may come late, and what it was meant for has ended.
            with contextlib.suppress(duckdb.InterruptException):
                self._connection.execute(self._checkpoint)
                return


def sync_folder(path: Path) -> None:
    """What was made, renamed or removed in it is so after a power cut too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
