"""Processes that give way to the others of the cell's group, for processors and for disks."""

import contextlib
import ctypes
import os
import platform
import struct
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# A tenth of what others get; the kernel derives the priority on disks from it.
NICE = 10
# Nearly half of it: what somebody waits for is to come to its end on a machine that is never idle.
QUIET = 4
# How long it runs at a stretch where nobody else wants the processor. Since Linux 6.12, a thread
# that wakes up and has a shorter slice takes the processor at once, in place of some ms later.
LONG_SLICE_NS: Final = 100_000_000
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}.get(platform.machine())
# Its size, the policy, flags, nice value, priority, runtime (here the slice), deadline and period.
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def lower(pids: Iterable[int], nice: int = NICE) -> None:
    """With all their threads; what they start later has it from them."""
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            for thread in Path(f"/proc/{pid}/task").iterdir():
                _lower(int(thread.name), nice)


def lower_own() -> None:
    """Of the thread that calls, for good, to `QUIET`; those that it starts have it from it."""
    _lower(threading.get_native_id(), QUIET)
    lengthen_own_slice()


def lengthen_own_slice() -> bool:
    """False where the system does not take it, and nothing has changed."""
    if _SCHED_SETATTR is None:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    given = (_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, LONG_SLICE_NS, 0, 0)
    attributes = ctypes.create_string_buffer(_ATTRIBUTES.pack(*given))
    return bool(_LIBC.syscall(_SCHED_SETATTR, 0, attributes, 0) == 0)


def _lower(thread: int, nice: int) -> None:
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, thread) < nice:
            os.setpriority(os.PRIO_PROCESS, thread, nice)
