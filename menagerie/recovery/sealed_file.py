"""An archive in one file: its objects, as a store would have them, one after the other."""

import contextlib
import os
import re
import secrets
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cell.backups.sealed_objects import DamagedError
from cell.backups.store import MissingError, OversizedError

MAGIC: Final = b"MNGRINS\x01"
OBJECTS_MAX: Final = 1_000_000
_HEAD: Final = struct.Struct(">BQ")
"""Before each object: the length of its name, and its own."""
_NAME: Final = re.compile(rb"[0-9A-Za-z_-]+(/[0-9A-Za-z_-]+){3}")


class NewSealedFile:
    """Takes objects, from several threads. Nothing is at its path before `publish`; mode 0600."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        descriptor = os.open(self.draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._file.write(MAGIC)
        self._lock = threading.Lock()

    def put(self, name: str, content: bytes) -> None:
        with self._lock:
            self._file.write(_HEAD.pack(len(name), len(content)))
            self._file.write(name.encode())
            self._file.write(content)
            self._file.flush()

    def publish(self) -> None:
        """From now on it is at its path, in place of what is there, also after a power cut."""
        os.fsync(self._file.fileno())
        self.draft.replace(self._path)
        descriptor = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(descriptor)
        os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self.draft.unlink(missing_ok=True)


class SealedFile:
    """The objects of a file. Raises DamagedError where it is none, or is cut off."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        try:
            self._places = dict(self._read())
        except BaseException:
            self._file.close()
            raise

    @property
    def names(self) -> list[str]:
        return list(self._places)

    def get(self, name: str, bytes_max: int) -> bytes:
        if name not in self._places:
            raise MissingError("the file does not have an object")
        start, length = self._places[name]
        if length > bytes_max:
            raise OversizedError("an object in the file is larger than what was written")
        self._file.seek(start)
        return self._file.read(length)

    def close(self) -> None:
        self._file.close()

    def _read(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """By name, where an object begins and how long it is."""
        size = os.fstat(self._file.fileno()).st_size
        if self._file.read(len(MAGIC)) != MAGIC:
            raise DamagedError("it is not a backup of an installation, or of a newer version")
        place = len(MAGIC)
        for _ in range(OBJECTS_MAX):
            if place == size:
                return
            self._file.seek(place)
            head = self._file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                break
            name_bytes, length = _HEAD.unpack(head)
            name = self._file.read(name_bytes)
            start = place + _HEAD.size + name_bytes
            if not _NAME.fullmatch(name) or start + length > size:
                break
            yield name.decode(), (start, length)
            place = start + length
        raise DamagedError("the file is cut off or damaged")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[SealedFile]:
    file = SealedFile(path)
    try:
        yield file
    finally:
        file.close()
