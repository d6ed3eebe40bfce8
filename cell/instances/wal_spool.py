"""Where WAL waits for the store: files that an instance's user writes, and the cell reads."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from cell.backups.wal_names import SEGMENT_BYTES, Segment, is_history
from cell.runtime import engine_files
from cell.runtime.engine_files import EnginePath

HISTORY_BYTES_MAX = 2**16
_ZERO = b"\0"
# By name: what a file was when it was looked at.
Stamps = dict[str, tuple[int, int]]


class WalSpool:
    """A folder of the user's in one of the cell's: no link in it is followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._put: Stamps = {}
        self._found: Stamps = {}

    @property
    def size_bytes(self) -> int:
        """As it was last looked at."""
        return sum(size for _, size in self._found.values())

    def make(self, owner: int | None) -> None:
        """What is there stays."""
        if engine_files.find(self.folder) is None:
            engine_files.make_folder(self.folder, owner)

    def clear(self) -> None:
        self._put, self._found = {}, {}
        engine_files.remove(self.folder)

    def has_changed(self) -> bool:
        """Since all of it was put into the store."""
        self._look()
        return self._found != self._put

    async def contents(self) -> AsyncIterator[tuple[str, Segment | None, bytes]]:
        """What was not put as it is: histories, full segments in order, and the one that fills."""
        await asyncio.to_thread(self._look)
        for name in sorted(self._found, key=_order):
            segment = Segment.parse(name)
            known = segment is not None or is_history(name)
            if known and self._put.get(name) != self._found[name]:
                content = await asyncio.to_thread(self._read, name, segment)
                if content is not None:
                    yield name, segment, content

    def was_put(self, name: str) -> None:
        if name in self._found:
            self._put[name] = self._found[name]

    def drop(self, name: str) -> None:
        """It is in the store."""
        engine_files.remove(EnginePath(self.folder) / name)
        self._put.pop(name, None)
        self._found.pop(name, None)

    def _look(self) -> None:
        """The stamps are taken before the content is read: what is written meanwhile is seen."""
        found: Stamps = {}
        with contextlib.suppress(OSError):
            for name in engine_files.names(EnginePath(self.folder)):
                there = engine_files.find(EnginePath(self.folder) / name)
                if there is not None:
                    found[name] = (there.st_mtime_ns, there.st_size)
        self._found = found
        self._put = {name: stamp for name, stamp in self._put.items() if name in found}

    def _read(self, name: str, segment: Segment | None) -> bytes | None:
        """None where it is not complete, or gone."""
        most = HISTORY_BYTES_MAX if segment is None else SEGMENT_BYTES
        try:
            with (
                engine_files.opened(EnginePath(self.folder) / name) as descriptor,
                os.fdopen(os.dup(descriptor), "rb") as file,
            ):
                content = file.read(most)
        except OSError:
            return None
        if segment is None:
            return content
        if name == segment.partial:
            # What is not written yet are zeros.
            return content.rstrip(_ZERO)
        return content if len(content) == SEGMENT_BYTES else None


def _order(name: str) -> tuple[bool, str]:
    return not is_history(name), name
