"""How much of the disk lies in a folder of an engine's, whatever it holds."""

import contextlib
import os
from collections.abc import Iterator

from cell.runtime.engine_files import OTHER, Place, TooDeepError, walk

# Of the disk's bytes, what a file system usually has for each of its inodes.
FILE_BYTES_MIN = 16_384
UNCOUNTED_BYTES = 10**15
"""What folders count for that are deeper: more than any size has."""


def size_bytes(place: Place) -> int:
    """What lies in a folder.

    Each file and folder counts for FILE_BYTES_MIN at least, as empty ones can use up a disk too,
    and for what it takes of the disk where that is more than its length.
    """
    total = 0
    try:
        for _, folders, files, descriptor in walk(place):
            total += len(folders) * FILE_BYTES_MIN
            total += sum(_size(found) for found in _found(files, descriptor))
    except TooDeepError:
        return UNCOUNTED_BYTES
    except OSError as error:
        if error.errno not in OTHER:
            raise
    return total


def taken_bytes(place: Place) -> int:
    """Of the disk, by all below; a file counts once by however many names."""
    taken: dict[int, int] = {}
    try:
        for _, _, files, descriptor in walk(place):
            taken |= {found.st_ino: _size(found) for found in _found(files, descriptor)}
    except TooDeepError:
        return UNCOUNTED_BYTES
    except OSError as error:
        if error.errno not in OTHER:
            raise
    return sum(taken.values())


def _found(files: list[str], folder: int) -> Iterator[os.stat_result]:
    for name in files:
        with contextlib.suppress(FileNotFoundError):
            yield os.stat(name, dir_fd=folder, follow_symlinks=False)


def _size(found: os.stat_result) -> int:
    return max(found.st_size, found.st_blocks * 512, FILE_BYTES_MIN)
