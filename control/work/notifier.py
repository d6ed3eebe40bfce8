"""Telling this process's idle workers to look at the table."""

import os
import secrets
import threading
from typing import Final
from weakref import WeakSet


class Notifier:
    """Wakes one waiting thread per notification; one that nobody waits for is kept for the next."""

    def __init__(self) -> None:
        self._notified = threading.Semaphore(0)
        _notifiers.add(self)

    def notify(self) -> None:
        self._notified.release()

    def wait(self, timeout_s: float) -> None:
        """Returns when notified, or after the time; what came before counts once."""
        if self._notified.acquire(timeout=timeout_s):
            while self._notified.acquire(blocking=False):
                pass


_notifiers: Final[WeakSet[Notifier]] = WeakSet()


_RUN: Final = secrets.token_hex(8)


def process() -> str:
    """A name that only this process has, also beside others forked from the same one."""
    return f"{_RUN}:{os.getpid()}"


def notify_all() -> None:
    for notifier in list(_notifiers):
        notifier.notify()
