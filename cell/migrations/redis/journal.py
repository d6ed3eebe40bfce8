"""What has come of a source, as files: a copy of all its data, and logs of the changes since.

A log is what the source sent, byte by byte, but for what does nothing: so its length says how far
it is, and a position that is on disk is that of data which is on disk. Whatever is killed, the next
one goes on there; nothing is taken over twice. Functions are for threads.
"""

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

import orjson

from cell.layout import sync_folder, write_atomically
from cell.migrations.redis.stream import Span, comment
from cell.runtime import engine_files

POSITION: Final = "position.json"
FETCHED: Final = "fetched"
# A transaction's size is not known while it is written over, in pieces of so much.
COMMENT_BYTES: Final = 1 << 20
PIECE_BYTES: Final = 1 << 20
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Position:
    """Of the source's history `replid`, all up to `offset` is in the copy `base` and in the logs.

    Logs are numbered from `first` to `last`; `log_bytes` of the last one count. It began with as
    many bytes that are not the source's, as `head_bytes` says, and after them at `begins_at`.
    """

    replid: str
    offset: int
    base: int
    first: int
    last: int
    head_bytes: int
    begins_at: int
    database: int = 0

    @property
    def log_bytes(self) -> int:
        return self.head_bytes + self.offset - self.begins_at


def _alone(work: Callable[Concatenate["Journal", P], T]) -> Callable[Concatenate["Journal", P], T]:
    """Whoever goes on from a position says the next one before anybody else does."""

    @functools.wraps(work)
    def locked(journal: "Journal", /, *given: P.args, **named: P.kwargs) -> T:
        with journal.lock:
            return work(journal, *given, **named)

    return locked


class Journal:
    """Written by who follows a source, and condensed by another thread meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.position: Position | None = None
        self.size_bytes = 0
        self.lock = threading.Lock()
        self._descriptor: int | None = None
        self._silent: list[Span] = []

    @property
    def fetched(self) -> Path:
        """Where a copy comes that is not there as a whole yet."""
        return self.folder / FETCHED

    def base(self, number: int) -> Path:
        return self.folder / f"base-{number}"

    def log(self, number: int) -> Path:
        return self.folder / f"log-{number}"

    @property
    def logs(self) -> list[Path]:
        at = self.known
        return [self.log(number) for number in range(at.first, at.last + 1)]

    @property
    def known(self) -> Position:
        assert self.position is not None
        return self.position

    def open(self) -> None:
        """As a former cell left it; `position` is None where there is no whole copy."""
        try:
            told = (self.folder / POSITION).read_bytes()
        except FileNotFoundError:
            return
        self.position = at = Position(**orjson.loads(told))
        self._descriptor = os.open(self.log(at.last), os.O_RDWR | os.O_NOFOLLOW)
        os.ftruncate(self._descriptor, at.log_bytes)
        self._clear()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @_alone
    def begin(self, replid: str, offset: int) -> None:
        """With the copy that was fetched, in place of all there was."""
        number = 1 if self.position is None else self.position.last + 1
        with self.fetched.open("rb") as file:
            os.fsync(file.fileno())
        self.fetched.replace(self.base(number))
        self._begin_log(Position(replid, offset, number, number, number, 0, offset), b"")

    @_alone
    def renamed(self, replid: str) -> None:
        """The source goes on with the same history by another id."""
        self._save(replace(self.known, replid=replid))

    def write(self, block: bytes, silent: list[Span], began_at: int) -> None:
        """What came after all that has come; `silent` are spans from the offset `began_at` on."""
        assert self._descriptor is not None
        at, left = self._end(), memoryview(block)
        while left:
            written = os.pwrite(self._descriptor, left, at)
            left, at = left[written:], at + written
        first = self.known.head_bytes + began_at - self.known.begins_at
        for span in silent:
            self._pass_over(first + span.start, first + span.end)
        self.size_bytes += len(block)

    def _pass_over(self, start: int, end: int) -> None:
        assert self._descriptor is not None
        while start < end:
            size = end - start
            if size > 2 * COMMENT_BYTES:
                size = COMMENT_BYTES
            os.pwrite(self._descriptor, comment(size), start)
            start += size

    def _end(self) -> int:
        assert self._descriptor is not None
        return os.fstat(self._descriptor).st_size

    @_alone
    def keep(self, offset: int, database: int) -> None:
        """All up to there is on disk when it returns."""
        at = self.known
        if (offset, database) == (at.offset, at.database):
            return
        assert self._descriptor is not None
        os.fdatasync(self._descriptor)
        self._save(replace(at, offset=offset, database=database))

    @_alone
    def rotate(self) -> None:
        """What is not whole yet, and what comes, goes into another log; the former ones stay."""
        at = self.known
        number = str(at.database).encode()
        head = b"*2\r\n$6\r\nSELECT\r\n$%d\r\n%s\r\n" % (len(number), number)
        begun = replace(at, last=at.last + 1, head_bytes=len(head), begins_at=at.offset)
        moved = os.open(self.log(at.last), os.O_RDWR | os.O_NOFOLLOW)
        try:
            self._begin_log(begun, head, moved, at.log_bytes)
        finally:
            os.close(moved)

    @_alone
    def condensed(self, base: Path, former: Position) -> bool:
        """The copy `base` has all that was there in the `former` position but its last log.

        False where all has been copied anew meanwhile.
        """
        if self.known.base != former.base:
            return False
        number = former.last
        base.replace(self.base(number))
        self._save(replace(self.known, base=number, first=number))
        self._clear()
        return True

    @_alone
    def drop(self) -> None:
        """What came after the position is not there as a whole, and comes again."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, self.known.log_bytes)
            self._count()

    def _begin_log(
        self, position: Position, head: bytes, moved: int | None = None, begins_at: int = 0
    ) -> None:
        """With what the file `moved` has from there on, and then has no more.

        What is lost of that where it is broken off comes again: it is after the position.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        descriptor = os.open(self.log(position.last), flags, 0o600)
        try:
            os.write(descriptor, head)
            at = begins_at
            while moved is not None and (piece := os.pread(moved, PIECE_BYTES, at)):
                at += os.write(descriptor, piece)
            os.fsync(descriptor)
            if moved is not None:
                os.ftruncate(moved, begins_at)
                os.fsync(moved)
        except BaseException:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor = descriptor
        self._save(position)
        self._clear()

    def _save(self, position: Position) -> None:
        write_atomically(self.folder / POSITION, orjson.dumps(asdict(position)))
        sync_folder(self.folder)
        self.position = position

    def _clear(self) -> None:
        """Of what was, what is no part of it any more."""
        kept = {self.base(self.known.base).name, *(path.name for path in self.logs)}
        for path in self.folder.iterdir():
            if path.name.startswith(("base-", "log-")) and path.name not in kept:
                with contextlib.suppress(OSError):
                    engine_files.remove(path)
        self._count()

    def _count(self) -> None:
        self.size_bytes = sum(path.stat().st_size for path in self.logs)
