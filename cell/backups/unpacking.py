"""The content of a backup: an archive, read once and forwards, and written to files as it comes."""

import os
import tarfile
from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Final, cast

from cell.backups.sealed_objects import DamagedError
from cell.runtime import budget, engine_files, patches
from cell.runtime.disks import WritingBehind

BLOCK_BYTES: Final = 1 << 20
# No name is as long as this.
HEADER_BYTES_MAX: Final = 1 << 16
NOTHING: Final = memoryview(b"")
FORMER: Final = "former"
"""What a backup builds on, while it is put together; no archive has it."""


class Forwards:
    """What `tarfile` takes for a file; without its own way to read streams, which copies all twice.

    It goes to where it is already, or to what lies behind.
    """

    def __init__(self) -> None:
        self._position = 0

    def tell(self) -> int:
        return self._position

    def take(self, wanted: int) -> memoryview:
        """Some of it, at most so many bytes, and nothing at the end; valid until the next call."""
        taken = self._take(wanted)
        self._position += len(taken)
        return taken

    @abstractmethod
    def _take(self, wanted: int) -> memoryview: ...

    def read(self, wanted: int) -> bytes:
        """For headers: less than that only at the end."""
        if wanted > HEADER_BYTES_MAX:
            raise DamagedError("the backup contains a name that is too long")
        found = bytearray()
        while len(found) < wanted and (taken := self.take(wanted - len(found))):
            found += taken
        return bytes(found)

    def seek(self, position: int) -> None:
        while self._position < position and self.take(position - self._position):
            pass

    def skip(self) -> None:
        """To the end."""
        while self.take(BLOCK_BYTES):
            pass


class BackupContent(Forwards):
    """All of it, by blocks, each of which is done with when the next one is asked for."""

    def __init__(
        self, blocks: Iterator[memoryview], bytes_max: int, progress: Callable[[int], None]
    ) -> None:
        super().__init__()
        self._blocks = blocks
        self._bytes_max = bytes_max
        self._progress = progress
        self._now = NOTHING
        self.received_bytes = 0

    def _take(self, wanted: int) -> memoryview:
        if not self._now:
            budget.go_on()
            self._now = next(self._blocks, NOTHING)
            self.received_bytes += len(self._now)
            if self.received_bytes > self._bytes_max:
                raise DamagedError("the backup is longer than its manifest says")
            self._progress(len(self._now))
        taken, self._now = self._now[:wanted], self._now[wanted:]
        return taken


class _Inner(Forwards):
    """So many bytes of it, which are an archive themselves."""

    def __init__(self, outer: Forwards, size_bytes: int) -> None:
        super().__init__()
        self._outer = outer
        self._size_bytes = size_bytes

    def _take(self, wanted: int) -> memoryview:
        return self._outer.take(min(wanted, self._size_bytes - self._position))


def unpack(source: Forwards, target: Path, archive: str | None) -> None:
    """Into a folder of the cell's, and an `archive` in it to a folder of its own.

    Raises DamagedError, tarfile.TarError or ValueError.
    """
    for member, words in _members(source):
        place = target.joinpath(*words)
        if member.isdir():
            engine_files.make_folder(place)
        elif member.name == archive:
            engine_files.make_folder(place.with_suffix(""))
            unpack(_Inner(source, member.size), place.with_suffix(""), None)
        else:
            _write(source, member.size, place)


def unpack_onto(source: Forwards, target: Path) -> None:
    """What builds on the backup that was unpacked there: whole files, and patches of its files.

    Files of which there is neither are gone. Raises what `unpack` does.
    """
    former = target / FORMER
    engine_files.make_folder(former)
    for name in engine_files.names(target):
        if name != FORMER:
            engine_files.rename(target / name, former / name)
    for member, words in _members(source):
        if words[0] == FORMER:
            raise DamagedError("the backup contains an unexpected entry")
        if member.isdir():
            engine_files.make_folder(target.joinpath(*words))
        elif words[0] != patches.FOLDER:
            _write(source, member.size, target.joinpath(*words))
        else:
            place = target.joinpath(*words[1:])
            try:
                engine_files.rename(former.joinpath(*words[1:]), place)
            except OSError as error:
                raise DamagedError("the backup that it builds on lacks a file") from error
            _patch(source, member.size, place)
    engine_files.remove(former)


def _members(source: Forwards) -> Iterator[tuple[tarfile.TarInfo, tuple[str, ...]]]:
    """Folders and ordinary files, with their names."""
    with tarfile.TarFile(fileobj=cast("IO[bytes]", source), mode="r") as tar:
        for member in tar:
            words = PurePosixPath(member.name).parts
            # A sparse file is longer than what is in the archive.
            plain = member.isdir() or (member.isreg() and not member.issparse())
            if not plain or ".." in words or member.name.startswith("/") or not words:
                raise DamagedError("the backup contains an unexpected entry")
            yield member, words


def _patch(source: Forwards, size_bytes: int, place: Path) -> None:
    budget.spend(size_bytes)
    with engine_files.opened(place, os.O_RDWR) as descriptor:
        patches.apply(source, size_bytes, descriptor)


def _write(source: Forwards, size_bytes: int, place: Path) -> None:
    with engine_files.parent_of(place) as (parent, name):
        descriptor = engine_files.create(name, parent)
    left = size_bytes
    with os.fdopen(descriptor, "wb") as file:
        behind = WritingBehind(file)
        while left > 0:
            if not (taken := source.take(left)):
                raise tarfile.ReadError("unexpected end of data")
            budget.spend(len(taken))
            behind.write(taken)
            left -= len(taken)
