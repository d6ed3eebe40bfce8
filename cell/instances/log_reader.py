"""Reads the log files of an engine in their order, in the pieces that are archived."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from cell.engines.driver import EngineError
from cell.engines.log_pieces import CONTENT_BYTES_MAX
from cell.engines.wal_sources import LogPlace, LogSource
from cell.instances.chain_archiver import GapError
from cell.layout import Site
from cell.runtime.engine_files import EnginePath, find, opened, parent_of, remove


@dataclass(frozen=True)
class LogCursor:
    """Where the next piece begins. The `inode` tells a file from another of its number; 0: any."""

    place: LogPlace
    inode: int = 0

    def __str__(self) -> str:
        return f"{self.place.file} {self.place.offset} {self.inode}"

    @classmethod
    def parse(cls, told: str) -> Self:
        file, offset, inode = map(int, told.split())
        return cls(LogPlace(file, offset), inode)


@dataclass(frozen=True)
class LogPiece:
    """`after` is where the next one begins: where this one does, unless it is whole."""

    place: LogPlace
    content: bytes
    is_whole: bool
    after: LogCursor

    @property
    def is_to_be_put(self) -> bool:
        """Each file has a piece at least, by which it is known that there is one: an empty one."""
        return bool(self.content) or (self.is_whole and not self.place.offset)

    def closed(self) -> Self:
        """Whole, though its file may still grow."""
        if self.is_whole:
            return self
        ends = LogPlace(self.place.file, self.place.offset + len(self.content))
        return replace(self, is_whole=True, after=LogCursor(ends, self.after.inode))


class LogReader:
    """Keeps the file that it reads, by a second name in `folder`, which is the cell's.

    So an engine may remove it once it is done with it, also while no cell runs.
    """

    def __init__(self, site: Site, source: LogSource, folder: Path, waiting_bytes_max: int) -> None:
        self._site = site
        self._folder = folder
        self._source = source
        self._waiting_bytes_max = waiting_bytes_max
        self._number = -1
        self._descriptor = -1

    def end(self) -> LogPlace | None:
        """Of all that is in the files now; None where there are none."""
        files = self._source.files(self._site)
        if not files:
            return None
        number = max(files)
        try:
            with opened(files[number]) as descriptor:
                return LogPlace(number, os.fstat(descriptor).st_size)
        except OSError:
            # It has just gone, as it will have been read to its end.
            return None

    def after_rest(self, cursor: LogCursor) -> LogCursor:
        """Of an engine that was started anew, once all was archived: the file may be gone."""
        files = self._source.files(self._site)
        number = cursor.place.file + 1
        if cursor.place.file in files or number not in files:
            return cursor
        return LogCursor(LogPlace(number, 0))

    def piece(self, cursor: LogCursor, archived_bytes: int) -> LogPiece:
        """What there is from the cursor on, of which so much is archived. Raises GapError."""
        # Looked at first: what is not the last one does not grow any more.
        files = self._source.files(self._site)
        number, offset = cursor.place.file, cursor.place.offset
        descriptor, inode = self._open(cursor, files.get(number))
        self._refuse_another(files, number, inode)
        is_last = not any(each > number for each in files)
        size = os.fstat(descriptor).st_size
        if size < offset + archived_bytes:
            raise GapError(f"the end of log file {number} was archived, and is gone")
        if size - offset + self._later_bytes(files, number) > self._waiting_bytes_max:
            most = self._waiting_bytes_max // 2**20
            raise GapError(f"more than {most} MiB of the log waited for the store of backups")
        content = os.pread(descriptor, min(CONTENT_BYTES_MAX, size - offset), offset)
        ends = offset + len(content)
        is_whole = len(content) == CONTENT_BYTES_MAX or not is_last
        after = LogCursor(LogPlace(number, ends if is_whole else offset), inode)
        if not is_last and ends == size:
            if number + 1 not in files:
                raise GapError(f"log file {number + 1} was removed before it was archived")
            after = LogCursor(LogPlace(number + 1, 0))
        return LogPiece(cursor.place, content, is_whole, after)

    @staticmethod
    def _refuse_another(files: dict[int, EnginePath], number: int, inode: int) -> None:
        """What is kept may be all that is left of a log that was removed, and begun anew."""
        if not files:
            raise EngineError("the engine has no log file")
        if max(files) < number:
            raise GapError("the log was begun anew")
        there = find(files[number]) if number in files else None
        if there is not None and there.st_ino != inode:
            raise GapError(f"log file {number} is another than the one that was archived")

    @staticmethod
    def _later_bytes(files: dict[int, EnginePath], number: int) -> int:
        found = (find(path) for each, path in files.items() if each > number)
        return sum(each.st_size for each in found if each is not None)

    def _open(self, cursor: LogCursor, path: EnginePath | None) -> tuple[int, int]:
        number = cursor.place.file
        if self._number != number:
            self.close()
            kept = self._folder / str(number)
            if not kept.exists():
                self._keep(kept, number, path)
            self._descriptor, self._number = os.open(kept, os.O_RDONLY | os.O_NOFOLLOW), number
        inode = os.fstat(self._descriptor).st_ino
        if cursor.inode not in (0, inode):
            raise GapError(f"log file {number} is another than the one that was archived")
        return self._descriptor, inode

    def _keep(self, kept: Path, number: int, path: EnginePath | None) -> None:
        """And no other any more."""
        if path is None:
            raise GapError(f"log file {number} was removed before it was archived")
        self.clear()
        self._folder.mkdir(mode=0o700)
        with opened(path) as descriptor, parent_of(path) as (folder, name):
            os.link(name, kept, src_dir_fd=folder, follow_symlinks=False)
            if kept.lstat().st_ino != os.fstat(descriptor).st_ino:
                raise GapError(f"log file {number} was replaced while it was looked at")

    def clear(self) -> None:
        """What is archived is not kept."""
        self.close()
        remove(self._folder)

    def close(self) -> None:
        descriptor, self._descriptor, self._number = self._descriptor, -1, -1
        if descriptor >= 0:
            os.close(descriptor)
