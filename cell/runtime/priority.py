"""Processes that give way to the others of the cell's group, for processors and for disks."""

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path

# A tenth of what others get; the kernel derives the priority on disks from it.
NICE = 10


def lower(pids: Iterable[int]) -> None:
    """With all their threads; what they start later has it from them."""
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            for thread in Path(f"/proc/{pid}/task").iterdir():
                _lower(int(thread.name))


def lower_own() -> None:
    """Of the thread that calls, for good."""
    _lower(threading.get_native_id())


def _lower(thread: int) -> None:
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, thread) < NICE:
            os.setpriority(os.PRIO_PROCESS, thread, NICE)
