"""How many connections each instance has, counted over all workers without asking any of them.

One shared table: a row for each name that is counted now, a column for each worker. A worker writes
its own column only, so no count is ever lost. A row is taken under a lock with a worker's first
count, and given back under it with the last one of all workers: who counts in a row holds it, and
who reads without counting there looks it up under the lock. The parent clears the column of a
worker that died.
"""

import contextlib
import fcntl
import hashlib
import mmap
import os
import secrets
import time
from collections.abc import Iterator

import structlog

from gateway.figures import Figures
from gateway.known_addresses import KnownAddresses

log = structlog.get_logger("gateway.slots")

# A connection counts under a few names, and workers have a bound of connections: four workers that
# are full take half of the rows, and then one is still found within a few steps.
ROWS = 262_144
STEPS_MAX = 64
KEY_BYTES = 8
FULL_SAID_S = 60.0


class Slots:
    """Made by the parent before it forks; `column` picks the worker's own counts afterwards."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        rows = ROWS + STEPS_MAX
        # Anonymous and shared: memory is taken only for the pages that are written.
        self._keys = memoryview(mmap.mmap(-1, rows * KEY_BYTES)).cast("Q")
        self._counts = memoryview(mmap.mmap(-1, rows * workers * 4)).cast("I")
        # A record lock goes with the process that holds it, also when that is killed.
        self._lock = os.memfd_create("slots")
        # Nobody can choose whose names share their steps.
        self._salt = secrets.token_bytes(16)
        # Of the names in which this worker has counted.
        self._rows: dict[str, int] = {}
        self._column = 0
        self._full_said_at = -FULL_SAID_S
        self.known = KnownAddresses()
        self.figures = Figures(workers)

    def use_column(self, column: int) -> None:
        self._column = column
        self.figures.use_column(column)

    def clear_column(self, column: int) -> None:
        self.figures.clear_levels(column)
        with self._alone():
            for row, key in enumerate(self._keys):
                if key:
                    self._counts[row * self._workers + column] = 0
                    self._give_back(row)

    def total(self, name: str) -> int:
        row = self._rows.get(name)
        if row is not None:
            return self._sum(row)
        with self._alone():
            row = self._look(self._key(name))
            return 0 if row is None else self._sum(row)

    def enter(self, name: str, limit: int | None) -> bool:
        """Counts first and takes back what was one too many: no race goes past the limit."""
        row = self._rows.get(name)
        if row is not None:
            self._counts[row * self._workers + self._column] += 1
        else:
            row = self._take(name)
        if row is None:
            self._say_full()
            return False
        if limit is not None and self._sum(row) > limit:
            self.leave(name)
            return False
        return True

    def leave(self, name: str) -> None:
        row = self._rows.get(name)
        if row is None:
            return  # the table was full
        own = row * self._workers + self._column
        if self._counts[own] > 1:
            self._counts[own] -= 1
            return
        del self._rows[name]
        with self._alone():
            self._counts[own] = 0
            self._give_back(row)

    def _take(self, name: str) -> int | None:
        """The row of the name, in which this worker counts one from now on; None without a row."""
        key = self._key(name)
        with self._alone():
            row = self._look(key)
            if row is None:
                row = self._look(key, 0)
            if row is not None:
                self._keys[row] = key
                self._counts[row * self._workers + self._column] = 1
                self._rows[name] = row
        return row

    def _give_back(self, row: int) -> None:
        if not self._sum(row):
            self._keys[row] = 0

    def _look(self, key: int, found: int | None = None) -> int | None:
        """Where among its steps the key is, or else what is to be `found` there."""
        first = key % ROWS
        steps = self._keys[first : first + STEPS_MAX].tolist()
        wanted = key if found is None else found
        return first + steps.index(wanted) if wanted in steps else None

    def _sum(self, row: int) -> int:
        first = row * self._workers
        return sum(self._counts[first : first + self._workers])

    def _key(self, name: str) -> int:
        digest = hashlib.blake2b(name.encode(), digest_size=KEY_BYTES, key=self._salt).digest()
        return int.from_bytes(digest, "big") or 1  # 0 is a row that nobody has

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def _say_full(self) -> None:
        if time.monotonic() - self._full_said_at >= FULL_SAID_S:
            self._full_said_at = time.monotonic()
            log.error("gateway.counts_full", rows=ROWS, counted_here=len(self._rows))
