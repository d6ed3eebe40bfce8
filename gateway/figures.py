"""What the workers count, as the parent writes it for whoever watches the gateway.

Each worker has a column of its own in memory that all share. A column outlives its worker, and the
next one goes on in it, so that no count ever falls; only what was open ends with a worker.
"""

import mmap
import os
import time
from collections import Counter
from pathlib import Path
from typing import Final

import orjson

COUNTS: Final = (
    "accepted",
    *("made_room", "malformed", "not_permitted", "not_woken", "paused", "too_many_connections"),
    *("unknown", "unreachable", "worker_full", "other"),
)
"""Accepted connections, and refusals by their reason."""
LEVELS: Final = ("connections", "handshakes")
NAMES: Final = (*COUNTS, *LEVELS)
FILE: Final = "gateway-figures.json"
WRITE_EVERY_S: Final = 10.0


class Figures:
    """Made by the parent before it forks; `use_column` picks the worker's own afterwards."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._cells = memoryview(mmap.mmap(-1, workers * len(NAMES) * 8)).cast("Q")
        self._column = 0

    def use_column(self, column: int) -> None:
        self._column = column

    def clear_levels(self, column: int) -> None:
        """Of a worker that died, with all that it had open."""
        for name in LEVELS:
            self._cells[self._place(column, name)] = 0

    def count(self, name: str, by: int = 1) -> None:
        known = name if name in COUNTS else "other"
        self._cells[self._place(self._column, known)] += by

    def count_all(self, refused: "Counter[str]") -> None:
        for reason, times in refused.items():
            self.count(reason, times)

    def set_level(self, name: str, level: int) -> None:
        self._cells[self._place(self._column, name)] = level

    def total(self, name: str) -> int:
        return sum(self._cells[self._place(column, name)] for column in range(self._workers))

    def write(self, folder: Path) -> None:
        """Whole or not at all, as others read it at any time."""
        content = {
            "written_at": time.time(),
            "pid": os.getpid(),
            "counts": {name: self.total(name) for name in COUNTS},
            "levels": {name: self.total(name) for name in LEVELS},
        }
        temporary = (folder / FILE).with_suffix(".part")
        temporary.write_bytes(orjson.dumps(content))
        temporary.replace(folder / FILE)

    def _place(self, column: int, name: str) -> int:
        return column * len(NAMES) + _PLACES[name]


_PLACES: Final = {name: place for place, name in enumerate(NAMES)}
