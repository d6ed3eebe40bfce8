"""A file's bytes by their place, read by blocks: who maps a file that becomes shorter is killed."""

import os
from typing import Final, overload

BLOCK_BYTES: Final = 1 << 16


class FileContent:
    """As a `bytes`, as long as the file was; IndexError where it has become shorter."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._length = os.fstat(descriptor).st_size
        self._first = 0
        self._block = b""

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> bytes: ...

    def __getitem__(self, place: int | slice) -> int | bytes:
        """Of places from the beginning on, and slices of them without a step."""
        if isinstance(place, slice):
            return self._read(place.start or 0, place.stop)
        at = place - self._first
        if 0 <= at < len(self._block):
            return self._block[at]
        return self._read(place, place + 1)[0]

    def find(self, text: bytes, start: int, end: int) -> int:
        """As `bytes.find`."""
        found = self._read(start, end).find(text)
        return found if found < 0 else start + found

    def _read(self, start: int, end: int) -> bytes:
        end = min(end, self._length)
        if start >= end:
            return b""
        if start < self._first or end > self._first + len(self._block):
            wanted = max(BLOCK_BYTES, end - start)
            self._block, self._first = os.pread(self._descriptor, wanted, start), start
        return self._block[start - self._first : end - self._first]
