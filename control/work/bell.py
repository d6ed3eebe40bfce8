"""The bell that tells this process's idle workers to look at the table."""

import os
import secrets
import threading
from typing import Final
from weakref import WeakSet


class Bell:
    """Wakes one waiting thread per ring; a ring that nobody waits for is kept for the next."""

    def __init__(self) -> None:
        self._rung = threading.Semaphore(0)
        _bells.add(self)

    def ring(self) -> None:
        self._rung.release()

    def wait(self, timeout_s: float) -> None:
        """Returns at the next ring, or after the time; older rings count once together."""
        if self._rung.acquire(timeout=timeout_s):
            while self._rung.acquire(blocking=False):
                pass


_bells: Final[WeakSet[Bell]] = WeakSet()


_RUN: Final = secrets.token_hex(8)


def process() -> str:
    """A name that only this process has, also beside others forked from the same one."""
    return f"{_RUN}:{os.getpid()}"


def ring_all() -> None:
    for bell in list(_bells):
        bell.ring()
