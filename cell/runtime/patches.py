"""A file of blocks, as what has changed of it since an earlier copy: written, and put in place.

    4 bytes        how many blocks the file has (big endian)
    4 bytes        of how many the content follows
    4 bytes each   their numbers, ascending
    ...            the blocks

Of a file that is as it was there is nothing at all.
"""

import array
import os
import struct
import sys
from collections.abc import Sequence
from typing import Final, Protocol

BLOCK_BYTES: Final = 8192
BLOCKS_MAX: Final = 1 << 17
"""Of a file: PostgreSQL begins another one after a gigabyte."""
FOLDER: Final = "changes"
"""In an archive: a patch lies below it, where the file that it is for lies in the whole copy."""
_HEAD: Final = struct.Struct(">II")
_NUMBER: Final = "I"


class PatchError(ValueError):
    """It is no patch, or none of this file."""


class Takes(Protocol):
    """Where a patch is read from, forwards."""

    def take(self, wanted: int) -> memoryview:
        """At most so many bytes; nothing at the end."""


def header(blocks: int, numbers: Sequence[int]) -> bytes:
    """What comes before the blocks with these numbers."""
    listed = array.array(_NUMBER, numbers)
    if sys.byteorder == "little":
        listed.byteswap()
    return _HEAD.pack(blocks, len(numbers)) + listed.tobytes()


def apply(source: Takes, size_bytes: int, descriptor: int) -> None:
    """To a file that is open for writing; `size_bytes` is how long the patch is.

    Raises PatchError, also where the file would have blocks that nothing tells of.
    """
    if size_bytes == 0:
        return
    if size_bytes < _HEAD.size:
        raise PatchError("a patch is cut off")
    blocks, count = _HEAD.unpack(_exactly(source, _HEAD.size))
    if not count <= blocks <= BLOCKS_MAX:
        raise PatchError("a patch is of more blocks than a file has")
    listed = array.array(_NUMBER)
    listed.frombytes(_exactly(source, count * listed.itemsize))
    if sys.byteorder == "little":
        listed.byteswap()
    if size_bytes != _HEAD.size + count * (listed.itemsize + BLOCK_BYTES):
        raise PatchError("a patch is not as long as it says")
    former = os.fstat(descriptor).st_size // BLOCK_BYTES
    _check(listed, blocks, former)
    os.ftruncate(descriptor, blocks * BLOCK_BYTES)
    for number in listed:
        _write(source, descriptor, number * BLOCK_BYTES)


def _check(numbers: Sequence[int], blocks: int, former: int) -> None:
    last = -1
    for number in numbers:
        if not last < number < blocks:
            raise PatchError("a patch has blocks in no order, or beyond the file")
        last = number
    # Else zeros would stand where there was data.
    told = sum(1 for number in numbers if number >= former)
    if told != max(0, blocks - former):
        raise PatchError("a patch does not have all blocks that the file had not")


def _write(source: Takes, descriptor: int, offset: int) -> None:
    left = BLOCK_BYTES
    while left:
        taken = source.take(left)
        if not taken:
            raise PatchError("a patch is cut off")
        done = 0
        while done < len(taken):
            done += os.pwrite(descriptor, taken[done:], offset + done)
        offset += len(taken)
        left -= len(taken)


def _exactly(source: Takes, wanted: int) -> bytes:
    found = bytearray()
    while len(found) < wanted:
        taken = source.take(wanted - len(found))
        if not taken:
            raise PatchError("a patch is cut off")
        found += taken
    return bytes(found)
