"""How fast copies work in the cell that take long: all together as fast as so many threads."""

import contextlib
import os
import time
from collections.abc import Iterator
from contextvars import ContextVar

AT_ONCE = max(2, len(os.sched_getaffinity(0)) // 2)
REST_MAX_S = 1.0


class Pace:
    """Of one copy. It works without a rest until it is `slow`, in whichever thread it does."""

    def __init__(self) -> None:
        self.slow = False
        self._since = time.monotonic()

    def rest(self) -> None:
        """After each block, for as long as the others need that are as slow."""
        now = time.monotonic()
        if self.slow:
            _SEEN[self] = now
            working = sum(seen > now - 2 * REST_MAX_S for seen in list(_SEEN.values()))
            took_s = now - self._since
            time.sleep(max(0.0, min(REST_MAX_S, took_s * (working / AT_ONCE - 1))))
        self._since = time.monotonic()

    def end(self) -> None:
        self.slow = False
        _SEEN.pop(self, None)


# When each of the slow was last at work here: one that waits for its engine slows down no other.
_SEEN: dict[Pace, float] = {}
# Threads that a copy is handed to take it along.
_NOW: ContextVar[Pace | None] = ContextVar("pace", default=None)


def keep(pace: Pace | None) -> None:
    """What is copied from now on keeps to it."""
    _NOW.set(pace)


@contextlib.contextmanager
def without_rests() -> Iterator[None]:
    """While an engine is held still, which waits for the end of the copy."""
    token = _NOW.set(None)
    try:
        yield
    finally:
        _NOW.reset(token)


def rest() -> None:
    if (now := _NOW.get()) is not None:
        now.rest()
