"""All processes of an engine held still (SIGSTOP), and let go on.

Whoever has taken one over may start others, and tell those that were stopped to go on, until the
last one is stopped.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

STOP_FOR_S = 2.0
"""What a busy machine, or a small share of a CPU, may take to bring processes to a halt."""
LOOK_EVERY_S = 0.002
# StopSignals, traced, ended. One that waits for the disk or for its vfork does nothing else either.
_STILL = "TtZXD"


class StopSignals:
    """Of one engine; several may hold it at once, and the last one lets it go on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._told: set[int] = set()

    @property
    def are_held(self) -> bool:
        # Without the lock, which takes up to `STOP_FOR_S` while they are brought to a halt.
        return self._holders > 0

    @contextlib.contextmanager
    def held(self, members: Callable[[], list[int]]) -> Iterator[bool]:
        """False where some would not be stopped. `members` answers the pids there are now."""
        with self._lock:
            self._holders += 1
        try:
            yield self._stop(members)
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    go_on([pid for pid in members() if pid in self._told])
                    self._told.clear()

    def _stop(self, members: Callable[[], list[int]]) -> bool:
        """What somebody else has stopped before stays so afterwards."""
        with self._lock:
            until = time.monotonic() + STOP_FOR_S
            former = {pid for pid in members() if pid not in self._told and _is_still(pid, "Tt")}
            while True:
                known = self._told | former
                going = [pid for pid in members() if pid not in known or not _is_still(pid)]
                if not going:
                    return True
                if time.monotonic() > until:
                    return False
                # One that waits for the disk, too: it stops before it does anything else.
                _signal(going, signal.SIGSTOP)
                self._told.update(going)
                time.sleep(LOOK_EVERY_S)


def go_on(pids: list[int]) -> None:
    _signal(pids, signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_still(pid: int, states: str = _STILL) -> bool:
    """Each of its threads."""
    with contextlib.suppress(OSError):
        return all(_state(thread) in states for thread in Path(f"/proc/{pid}/task").iterdir())
    return True


def _state(thread: Path) -> str:
    with contextlib.suppress(OSError):
        return (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    return "X"
