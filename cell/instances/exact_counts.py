"""Counts of all files of an instance while its engine is held still, where the disk has filled.

An engine that somebody has taken over could move a file to a folder that was counted already, or
hand it from process to process, for as long as anybody counts.
"""

import contextlib
import time
from dataclasses import dataclass
from typing import Final

from cell.engines.storage_use import HURRIED_BYTES, beside_bytes, on_disk
from cell.instances import ceilings, nameless_files
from cell.instances.hosted import HostedInstance
from cell.runtime.folder_sizes import FolderSizes
from cell.runtime.process import Process

REST: Final = 200
"""Times as long as an engine was held still, until it may be again."""
CPU_REST: Final = 20
"""The same by the CPU that a count took."""
REST_S_MIN: Final = 10.0
LATEST_S: Final = 600.0
"""Until the next one even if the disk has not filled, as others may have removed as much."""
TRIES: Final = 3
"""No engine by itself resists to be stopped so often in succession."""


@dataclass
class _Count:
    disk_bytes: int
    """`on_disk`, before it began."""
    ended_at: float
    rest_s: float
    failed: int

    def is_due(self, disk_bytes: int) -> bool:
        passed_s = time.monotonic() - self.ended_at
        has_filled = disk_bytes - self.disk_bytes >= HURRIED_BYTES
        return passed_s >= self.rest_s and (has_filled or passed_s >= LATEST_S)


class ExactCounts:
    """One for all instances of a cell; not for two threads and one instance at once."""

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}

    def excess(self, instance: HostedInstance) -> int | None:
        """As `ceilings.excess`; None, too, where no count is due."""
        if (process := instance.process) is None:
            return None
        disk_bytes = on_disk(instance.site)
        first = _Count(disk_bytes, time.monotonic(), 0.0, 0)
        last = self._counts.setdefault(instance.instance_id, first)
        last.disk_bytes = min(last.disk_bytes, disk_bytes)
        if not last.is_due(disk_bytes):
            return None
        began = time.thread_time()
        used_bytes, held_s = count(instance, process)
        rest_s = max(REST_S_MIN, held_s * REST, (time.thread_time() - began) * CPU_REST)
        if used_bytes is not None:
            last = _Count(disk_bytes, time.monotonic(), rest_s, 0)
        else:
            last = _Count(last.disk_bytes, time.monotonic(), rest_s, last.failed + 1)
            used_bytes = nameless_files.UNKNOWN_BYTES if last.failed >= TRIES else 0
        self._counts[instance.instance_id] = last
        return used_bytes if ceilings.past(instance, used_bytes) else None

    def forget(self, instance_id: str) -> None:
        self._counts.pop(instance_id, None)


def count(instance: HostedInstance, process: Process) -> tuple[int | None, float]:
    """Bytes, None where it would not be held still; and for how long it was, in seconds."""
    site, folders = instance.site, FolderSizes()
    # Most is read before; of it, what has changed meanwhile is read again.
    with contextlib.suppress(OSError):
        folders.count(site.data)
    began = time.monotonic()
    with process.held_still() as is_still:
        used = folders.count(site.data) + beside_bytes(site)
        used += nameless_files.count(process.members(), site.data)
    return used if is_still else None, time.monotonic() - began
