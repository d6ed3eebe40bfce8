"""What is written into a file system is brought to its disk: all at once, or as it comes."""

import ctypes
import os
from typing import IO, Final

from cell.runtime import engine_files
from cell.runtime.engine_files import Place

# What of a file is on its way to the disk together.
STEP_BYTES: Final = 1 << 23
_SYNC_FILE_RANGE_WRITE: Final = 2
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def synchronise(folder: Place) -> None:
    """Everything written into the file system of a folder is on disk when this returns.

    One call for a thousand files, each of which would wait for the disk by itself.
    """
    with engine_files.held(folder) as descriptor:
        if _LIBC.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


class WritingBehind:
    """A new file whose content is on its way to the disk while more is written.

    Else the system keeps gigabytes in memory, and whoever asks for them to be durable waits for
    the disk only then. Small files are left to it, which writes neighboring ones together.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._written = 0
        self._begun = 0

    def write(self, content: bytes | memoryview) -> int:
        count = self._file.write(content)
        self._written += count
        if self._written - self._begun >= STEP_BYTES:
            self._file.flush()
            begin_writing(self._file.fileno(), self._begun, self._written - self._begun)
            self._begun = self._written
        return count


def begin_writing(descriptor: int, start: int, count: int) -> bool:
    """Of so many bytes of a file; does not wait for the end. False: they are written later."""
    return bool(_LIBC.sync_file_range(descriptor, start, count, _SYNC_FILE_RANGE_WRITE) == 0)
