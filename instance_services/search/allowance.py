"""Owns what an instance may use: memory for indexing, and storage for its data."""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from instance_services.search.errors import ApiError

_GROWING: Final = frozenset(
    {"documentAdditionOrUpdate", "settingsUpdate", "indexCreation", "indexUpdate", "indexSwap"}
)
"""Types of tasks that are refused where the storage is full. Others make room, or need none."""
# What SQLite, orjson and tantivy say; EAGAIN and ENOMEM of a thread and of a file.
_SHORT: Final = ("memory", "os error 11", "os error 12", "panicked", "killed")
_FULL: Final = (
    "the storage is full: delete documents or indexes, or choose a larger storage, then try again"
)


@dataclass(frozen=True)
class Limits:
    """Each in bytes; None is as much as there is."""

    indexing_bytes: int | None = None
    """All memory that the indexing process may ask for."""
    storage_bytes: int | None = None
    answer_bytes: int | None = None
    """Of documents, in the answer to one request."""
    vector_bytes: int = 256 * 2**20
    """Of vectors in memory, those of all indexes together."""

    def words(self) -> list[str]:
        """As options of the indexing process."""
        found = []
        if self.indexing_bytes is not None:
            found += ["--memory-bytes", str(self.indexing_bytes)]
        if self.storage_bytes is not None:
            found += ["--storage-bytes", str(self.storage_bytes)]
        return found


def is_short_of_memory(error: Exception) -> bool:
    """Then nothing that the process does next is sure to have any: it ends, and begins anew."""
    return isinstance(error, MemoryError) or any(word in str(error) for word in _SHORT)


def is_full(
    storage_bytes: int | None, *connections: sqlite3.Connection, candidates: Path | None = None
) -> bool:
    """Whether the databases use the storage, with the candidates if their folder is given.

    What is free within their files does not count, as they grow into that first; nor do their logs,
    which are as long as a batch and no longer.
    """
    if storage_bytes is None:
        return False
    used_bytes = sum(_used_bytes(each) for each in connections)
    if candidates is not None:
        for here, _, names in os.walk(candidates):
            used_bytes += sum(_size(Path(here) / each) for each in names)
    return used_bytes > storage_bytes


def refuse_growth(kind: str) -> None:
    """Of a task where the storage is full. Raises ApiError, but for a type that makes room."""
    if kind in _GROWING:
        raise ApiError("no_space_left_on_device", _FULL)


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages, free, page_bytes = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * page_bytes


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
