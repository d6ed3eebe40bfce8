"""How much storage instances use: counted file by file, and less often the longer that takes."""

import time
from collections.abc import Callable
from pathlib import Path

from cell.layout import Site
from cell.runtime.host import size_bytes

# A million tables are as many files: to look at them all must not be all that is done.
REST = 20
"""Times as long as a count takes, until the next one."""


def at_once(_used_bytes: int) -> float:
    return 0.0


RUN_BYTES = 2**20
"""What sockets and files of process numbers may take; what an engine writes beyond counts."""


def beside_bytes(site: Site) -> int:
    """What an engine keeps where its sockets lie, which is on the disk of all tenants too."""
    return max(0, size_bytes(site.run) - RUN_BYTES)


class StorageUse:
    """Of all instances of a driver, as last counted."""

    def __init__(self) -> None:
        self._counted: dict[Path, tuple[float, int]] = {}

    def count(self, site: Site, wait_s: Callable[[int], float] = at_once) -> tuple[int, bool]:
        """Answers the bytes, and whether they were counted now; `wait_s` is until the next time."""
        began = time.monotonic()
        due_at, used_bytes = self._counted.get(site.directory, (0.0, 0))
        if began < due_at:
            return used_bytes, False
        used_bytes = size_bytes(site.data) + beside_bytes(site)
        ended = time.monotonic()
        rest_s = max((ended - began) * REST, wait_s(used_bytes))
        self._counted[site.directory] = ended + rest_s, used_bytes
        return used_bytes, True

    def forget(self, site: Site) -> None:
        self._counted.pop(site.directory, None)
