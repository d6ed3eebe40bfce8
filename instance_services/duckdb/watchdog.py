"""Owns the proof that the event loop still turns while queries run; without it the process ends.

A value that takes seconds to become one of Python's holds the interpreter for as long, and with it
everything that could notice. So the kernel is asked to end the process once it has worked for so
long without the loop having had a turn. It counts work and not time: a process that is held still
for a snapshot, or that gets little CPU, is not ended for it.
"""

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable

_BEAT_S = 0.5
# Of each CPU that the process may use.
_WORKED_S = 5.0


class Watchdog:
    """Beats on the running loop while `is_needed`."""

    def __init__(self, is_needed: Callable[[], bool], *, threads: int | None) -> None:
        self._is_needed = is_needed
        self._worked_s = _WORKED_S * (threads or os.cpu_count() or 1)
        self._beating = False

    def begin(self) -> None:
        if not self._beating:
            self._beating = True
            _end_at_signal()
            self._beat()

    def end(self) -> None:
        """The loop needs no more turns, and whatever else the process does must not end it."""
        self._is_needed = lambda: False
        self._beating = False
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _beat(self) -> None:
        self._beating = self._is_needed()
        signal.setitimer(signal.ITIMER_PROF, self._worked_s if self._beating else 0)
        if self._beating:
            asyncio.get_running_loop().call_later(_BEAT_S, self._beat)


def _end_at_signal() -> None:
    """The process's exit as the handler: Python's own would wait for the interpreter.

    Without a handler the kernel would spare the first process of a namespace, which we may be.
    """
    libc = ctypes.CDLL(None)
    libc.signal(int(signal.SIGPROF), ctypes.cast(libc["_exit"], ctypes.c_void_p))
