"""How much of the disk lies in a folder of an engine's, whatever it holds."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from cell.runtime import engine_files
from cell.runtime.engine_files import OTHER, Place, TooDeepError, walk

# Of the disk's bytes, what a file system usually has for each of its inodes.
FILE_BYTES_MIN = 16_384
UNCOUNTED_BYTES = 10**15
"""What folders count for that are deeper: more than any size has."""


# A change in the same tick of the kernel's clock as another does not show.
TICK_NS = 20_000_000


def size_bytes(place: Place) -> int:
    """What lies in a folder.

    Each file and folder counts for FILE_BYTES_MIN at least, as empty ones can use up a disk too,
    and for what it takes of the disk where that is more than its length.
    """
    return FolderSizes().count(place)


@dataclass(frozen=True)
class _Folder:
    changed_ns: int
    own_bytes: int
    """Of what lies in it, without what lies in its folders."""
    folders: list[str]


class FolderSizes:
    """A folder that may be counted again: then only folders are read that have changed since.

    Files that have become longer are not looked at again; where files were moved to, added or
    removed is.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Folder] = {}

    def count(self, place: Place) -> int:
        """As `size_bytes`, which has the text."""
        counted: list[int] = []

        def listed(descriptor: int) -> engine_files.Listing:
            folder = self._folder(descriptor)
            counted.append(folder.own_bytes)
            return folder.folders, []

        try:
            for _ in walk(place, listed):
                pass
        except TooDeepError:
            return UNCOUNTED_BYTES
        except OSError as error:
            if error.errno not in OTHER:
                raise
        return sum(counted)

    def _folder(self, descriptor: int) -> _Folder:
        now_ns, found = time.time_ns(), os.fstat(descriptor)
        known = self._known.get(found.st_ino)
        if known is not None and known.changed_ns == found.st_ctime_ns:
            return known
        folders, files = engine_files.listed(descriptor)
        sizes = sum(_size(each) for each in _found(files, descriptor))
        read = _Folder(found.st_ctime_ns, len(folders) * FILE_BYTES_MIN + sizes, folders)
        if now_ns - found.st_ctime_ns > TICK_NS:
            self._known[found.st_ino] = read
        return read


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
