"""Owns the storage limit: how much disk the database uses, and whether it may grow."""

import os
from collections.abc import Callable
from pathlib import Path

# With what is written before anybody looks, less than an engine is stopped for.
_SPILLING = 1.25


class Full(Exception):  # noqa: N818 - an answer to the client and not a fault
    """The database may not grow."""


class Allowance:
    """Counts the database file, its log and what queries have spilled. Threads may share it.

    What a checkpoint has left free within the file is used before the file grows, and does not
    count: a file only becomes shorter where its end is free.
    """

    def __init__(self, database: Path, temp_directory: Path, storage_bytes: int | None) -> None:
        self.database = database
        self.directory = database.parent
        self._log = log_of(database)
        self._temp_directory = temp_directory
        self.storage_bytes = storage_bytes
        self._free_bytes = 0

    def begin(self, free_bytes: Callable[[], int], *, grows: bool) -> None:
        """To be called before a request; the engine is asked what is free only where it matters."""
        self._free_bytes = 0
        if self.storage_bytes is not None:
            least = self.storage_bytes / 2 if grows else self.storage_bytes
            if size(self.database) > least:
                self._free_bytes = free_bytes()

    def used_bytes(self) -> int:
        written = size(self.database) + size(self._log) + _size_within(self._temp_directory)
        return written - self._free_bytes

    def exceeded(self) -> bool:
        return self.storage_bytes is not None and self.used_bytes() > self.storage_bytes

    def overspilled(self) -> bool:
        """For what only reads, and spills: a database that is nearly full can still be sorted."""
        most = self.storage_bytes
        if most is None or self.used_bytes() <= most * _SPILLING:
            return False
        return _size_within(self._temp_directory) > 0

    def check(self) -> None:
        """Raises Full at the limit; deleting and dropping need no check."""
        if self.exceeded():
            raise Full(self.refusal())

    def refusal(self) -> str:
        return (
            f"storage is full: {self.used_bytes()} of {self.storage_bytes} bytes are used; "
            "delete or drop and run CHECKPOINT, or choose a larger storage"
        )


def log_of(database: Path) -> Path:
    """Where the engine writes what is not in the database file yet."""
    return database.with_name(f"{database.name}.wal")


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _size_within(directory: Path) -> int:
    try:
        return sum(size(Path(entry.path)) for entry in os.scandir(directory) if entry.is_file())
    except FileNotFoundError:
        return 0
