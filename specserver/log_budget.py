"""Owns how many lines of the log others can cause: so many of each address, and then a sum."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import structlog

OF_ONE = 20
IN_ALL = 600
WITHIN_S = 60.0

log = structlog.get_logger("specserver")


class LogBudget:
    """For lines that tell of requests, most of them refused, which cost their sender nothing.

    What is left out is told in one line by the next one after the minute: how many, and who sent
    the most. No more addresses are kept than lines are written.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends_at = clock() + WITHIN_S
        self._lines = 0
        self._written: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._total = 0

    def info(self, address: str, event: str, **facts: Any) -> None:
        if self.takes(address):
            log.info(event, **facts)

    def takes(self, address: str) -> bool:
        if self._clock() >= self._ends_at:
            self._begin_again()
        if self._lines < IN_ALL and self._written[address] < OF_ONE:
            self._lines += 1
            self._written[address] += 1
            return True
        self._total += 1
        if address in self._left_out or len(self._left_out) < IN_ALL:
            self._left_out[address] += 1
        return False

    def _begin_again(self) -> None:
        if self._total:
            most = dict(self._left_out.most_common(3))
            log.info("lines of the log left out", lines=self._total, most_by_address=most)
        self._ends_at = self._clock() + WITHIN_S
        self._lines = 0
        self._written.clear()
        self._left_out.clear()
        self._total = 0
