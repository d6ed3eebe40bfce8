"""Everything written into a file system, brought to its disk at once."""

import ctypes
import os

from cell.runtime import engine_files
from cell.runtime.engine_files import Place

_LIBC = ctypes.CDLL(None, use_errno=True)


def synchronise(folder: Place) -> None:
    """Everything written into the file system of a folder is on disk when this returns.

    One call for a thousand files, each of which would wait for the disk by itself.
    """
    with engine_files.held(folder) as descriptor:
        if _LIBC.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
