"""Run as a program: takes a filter of system calls from a descriptor, then becomes the engine.

It is used where there is no bubblewrap, and imports nothing of ours: nothing is on its path.
"""

import ctypes
import os
import sys

_NO_NEW_PRIVS = 38
_SET_SECCOMP = 22
_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def enter(content: bytes) -> None:
    """From here on this process, and all that it becomes or starts, is held to the filter."""
    kernel = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(content) // _INSTRUCTION_BYTES, content)
    calls = (
        (_NO_NEW_PRIVS, ctypes.c_ulong(1), ctypes.c_ulong(0)),
        (_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), ctypes.byref(program)),
    )
    for option, first, second in calls:
        if kernel.prctl(option, first, second, ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1]), "rb") as reading:
        enter(reading.read())
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - the cell's own words
