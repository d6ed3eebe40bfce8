"""How many connections each instance has, counted over all workers without asking any of them.

One shared table: a row per instance, a column per worker. A worker writes its own column only, so
no count is ever lost; a new row is claimed under a lock. The parent clears the column of a
worker that died.
"""

import fcntl
import hashlib
import mmap
import os

from cell.gateway.known import Known

ROWS = 65_536
KEY_BYTES = 8


class Slots:
    """Made by the parent before it forks; `column` picks the worker's own counts afterwards."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        # Anonymous and shared: memory is taken only for the pages that are written.
        self._keys = memoryview(mmap.mmap(-1, ROWS * KEY_BYTES)).cast("Q")
        self._counts = memoryview(mmap.mmap(-1, ROWS * workers * 4)).cast("I")
        # A record lock goes with the process that holds it, also when that is killed.
        self._lock = os.memfd_create("slots")
        self._rows: dict[str, int] = {}
        self._column = 0
        self.known = Known()

    def use_column(self, column: int) -> None:
        self._column = column

    def clear_column(self, column: int) -> None:
        for row in range(ROWS):
            if self._keys[row]:
                self._counts[row * self._workers + column] = 0

    def total(self, instance_id: str) -> int:
        first = self._row(instance_id) * self._workers
        return sum(self._counts[first : first + self._workers])

    def enter(self, instance_id: str, limit: int | None) -> bool:
        """Counts first and takes back what was one too many: no race goes past the limit."""
        own = self._row(instance_id) * self._workers + self._column
        self._counts[own] += 1
        if limit is not None and self.total(instance_id) > limit:
            self._counts[own] -= 1
            return False
        return True

    def leave(self, instance_id: str) -> None:
        self._counts[self._row(instance_id) * self._workers + self._column] -= 1

    def _row(self, instance_id: str) -> int:
        row = self._rows.get(instance_id)
        if row is None:
            row = self._rows[instance_id] = self._claim(instance_id)
        return row

    def _claim(self, instance_id: str) -> int:
        digest = hashlib.blake2b(instance_id.encode(), digest_size=KEY_BYTES).digest()
        key = int.from_bytes(digest, "big") or 1
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            for step in range(ROWS):
                row = (key + step) % ROWS
                if self._keys[row] in (0, key):
                    self._keys[row] = key
                    return row
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)
        raise RuntimeError(f"more than {ROWS} instances have been served by one gateway")
