"""Processes that give way to the others of the cell's group, for processors and for disks."""

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path

# A tenth of what others get; the kernel derives the priority on disks from it.
NICE = 10
# Nearly half of it: what somebody waits for is to come to its end on a machine that is never idle.
QUIET = 4


def lower(pids: Iterable[int], nice: int = NICE) -> None:
    """With all their threads; what they start later has it from them."""
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            for thread in Path(f"/proc/{pid}/task").iterdir():
                _lower(int(thread.name), nice)


def lower_own() -> None:
    """Of the thread that calls, for good, to `QUIET`."""
    _lower(threading.get_native_id(), QUIET)


def _lower(thread: int, nice: int) -> None:
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, thread) < nice:
            os.setpriority(os.PRIO_PROCESS, thread, nice)
