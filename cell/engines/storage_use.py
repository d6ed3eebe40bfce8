"""How much storage instances use: counted file by file, and less often the longer that takes."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cell.layout import Site
from cell.runtime.folder_sizes import FILE_BYTES_MIN, size_bytes

# A million tables are as many files: to look at them all must not be all that is done.
REST = 20
"""Times as long as a count takes of a CPU, until the next one."""
HURRIED_REST = 3
"""The same once the disk has filled by `HURRIED_BYTES`, which may be this instance's."""
HURRIED_BYTES = 256 * 2**20


def at_once(_used_bytes: int) -> float:
    return 0.0


RUN_BYTES = 2**20
"""What sockets and files of process numbers may take; what an engine writes beyond counts."""


def beside_bytes(site: Site) -> int:
    """What an engine keeps where its sockets lie, which is on the disk of all tenants too."""
    return max(0, size_bytes(site.run) - RUN_BYTES)


def on_disk(site: Site) -> int:
    """What all that share the disk have on it: it grows when bytes or files are added."""
    disk = os.statvfs(site.directory)
    taken = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    return taken + (disk.f_files - disk.f_ffree) * FILE_BYTES_MIN


@dataclass(frozen=True)
class _Count:
    used_bytes: int
    ended_at: float
    took_s: float
    wait_s: float
    disk_bytes: int
    """`on_disk`, before it began."""

    def due_at(self, disk_bytes: int) -> float:
        """Sooner where the disk fills: nobody grows unseen while his many files are not counted."""
        if disk_bytes - self.disk_bytes > HURRIED_BYTES:
            return self.ended_at + self.took_s * HURRIED_REST
        return self.ended_at + max(self.took_s * REST, self.wait_s)


class StorageUse:
    """Of all instances of a driver, as last counted."""

    def __init__(self) -> None:
        self._counted: dict[Path, _Count] = {}

    def count(self, site: Site, wait_s: Callable[[int], float] = at_once) -> tuple[int, bool]:
        """Answers the bytes, and whether they were counted now; `wait_s` is until the next time."""
        return self.look(site, lambda: size_bytes(site.data) + beside_bytes(site), wait_s)

    def look(
        self, site: Site, counted: Callable[[], int], wait_s: Callable[[int], float] = at_once
    ) -> tuple[int, bool]:
        """The same of what `counted` counts; each needs a `StorageUse` of its own."""
        last, disk = self._counted.get(site.directory), on_disk(site)
        if last is not None and time.monotonic() < last.due_at(disk):
            return last.used_bytes, False
        began = time.thread_time()
        used_bytes = counted()
        took_s = time.thread_time() - began
        self._counted[site.directory] = _Count(
            used_bytes, time.monotonic(), took_s, wait_s(used_bytes), disk
        )
        return used_bytes, True

    def forget(self, site: Site) -> None:
        self._counted.pop(site.directory, None)
