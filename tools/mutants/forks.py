"""Children of this process that do one thing each, so many at a time, in a given time."""

import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.results import NO_VERDICT, TIMEOUT

_TIMEOUTS = (-signal.SIGXCPU, -signal.SIGKILL)


@dataclass(frozen=True)
class _Child:
    name: str
    pid: int
    folder: Path
    """Its temporary files, which it leaves behind."""
    ends_at: float


class Forks:
    """`ended` is told the name and the exit status of each that has ended."""

    def __init__(self, most: int, ended: Callable[[str, int], None]) -> None:
        self._most = most
        self._ended = ended
        self._running: dict[int, _Child] = {}

    def start(self, name: str, work: Callable[[], int], limit_s: float) -> None:
        """Let a child return the exit status from `work`, as soon as there are not too many."""
        self._wait(self._most - 1)
        folder = Path(tempfile.mkdtemp())
        pid = os.fork()
        if pid == 0:
            _work(work, folder)
        child = _Child(name, pid, folder, time.monotonic() + limit_s)
        self._running[os.pidfd_open(pid)] = child

    def wait(self) -> None:
        """Until all have ended."""
        self._wait(0)

    def kill(self) -> None:
        """Nobody is told."""
        for descriptor in [*self._running]:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            self._reap(descriptor)

    def _wait(self, left: int) -> None:
        while len(self._running) > left:
            soonest = min(child.ends_at for child in self._running.values())
            rest = max(0.0, soonest - time.monotonic())
            ready, _, _ = select.select([*self._running], [], [], rest)
            for descriptor in ready:
                self._ended(*self._reap(descriptor))
            if not ready:
                self._kill_late()

    def _kill_late(self) -> None:
        for descriptor, child in self._running.items():
            if child.ends_at <= time.monotonic():
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)

    def _reap(self, descriptor: int) -> tuple[str, int]:
        child = self._running.pop(descriptor)
        _, status = os.waitpid(child.pid, 0)
        os.close(descriptor)
        shutil.rmtree(child.folder, ignore_errors=True)
        code = os.waitstatus_to_exitcode(status)
        return child.name, TIMEOUT if code in _TIMEOUTS else code


def _work(work: Callable[[], int], folder: Path) -> None:
    code = NO_VERDICT
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(null, stream)
        tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
        code = work()
    finally:
        # Whatever has happened: the parent's own work is not to be done by its child as well.
        os._exit(code)
