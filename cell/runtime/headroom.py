"""Memory beyond its size that an engine has while it starts: to recover may take more than to run.

What a crash or a former holder left must not make every start fail. It is bounded, and no more than
the machine has free.
"""

import threading
from collections.abc import Callable

from cell.runtime.cgroups import Groups
from cell.runtime.machine import free_memory_bytes

EXTRA_MAX_BYTES = 3 * 2**30
# For the cell, and for what the others take meanwhile.
LEFT_FREE_BYTES = 2**28


class Headroom:
    def __init__(self, groups: Groups, free_bytes: Callable[[], int] = free_memory_bytes) -> None:
        self._groups = groups
        self._free_bytes = free_bytes
        self._given: dict[str, int] = {}
        self._giving = threading.Lock()

    def give(self, name: str, size_bytes: int) -> None:
        """Until `take_back`; each has half of what is free at most."""
        with self._giving:
            self._given.pop(name, None)
            free = self._free_bytes() - size_bytes - sum(self._given.values()) - LEFT_FREE_BYTES
            # However many are slow to give theirs back, something is left for the next.
            extra = min(EXTRA_MAX_BYTES, free // 2)
            if extra > 0 and self._groups.set_memory(name, size_bytes + extra):
                self._given[name] = extra

    def take_back(self, name: str, size_bytes: int) -> bool:
        """False where the engine still uses more than its size."""
        if not self._groups.set_memory(name, size_bytes):
            return False
        self.forget(name)
        return True

    def forget(self, name: str) -> None:
        """Of an engine that has ended."""
        with self._giving:
            self._given.pop(name, None)
