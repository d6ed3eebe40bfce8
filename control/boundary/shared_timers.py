"""Owns timers for thousands who wait on an event loop: who ends at about the same time shares one.

A timer and a turn of the loop for each would be a third of what a stream costs while nothing comes.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import asyncio

TICK_S: Final = 0.05


class Waiter(Protocol):
    def end_wait(self) -> None:
        """Its time is over."""


class SharedTimers:
    """Of one event loop, on which everything of it is called."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[int, set[Waiter]] = {}

    def add(self, waiter: Waiter, after_s: float) -> set[Waiter]:
        """Ends its wait at most `TICK_S` later than that, unless it takes itself out of the set."""
        tick = math.ceil((time.monotonic() + after_s) / TICK_S)
        found = self._waiting.get(tick)
        if found is None:
            found = self._waiting[tick] = set()
            self._set(tick)
        found.add(waiter)
        return found

    def _set(self, tick: int) -> None:
        self._loop.call_later(max(0.0, tick * TICK_S - time.monotonic()), self._end, tick)

    def _end(self, tick: int) -> None:
        if time.monotonic() < tick * TICK_S:
            # The loop's clock stands still during a turn, so its timers may be early.
            self._set(tick)
            return
        for waiter in self._waiting.pop(tick):
            waiter.end_wait()


_OF_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, SharedTimers] = WeakKeyDictionary()


def shared_timers(loop: asyncio.AbstractEventLoop) -> SharedTimers:
    """Those of the loop, on which this is called."""
    found = _OF_LOOPS.get(loop)
    if found is None:
        found = _OF_LOOPS[loop] = SharedTimers(loop)
    return found
