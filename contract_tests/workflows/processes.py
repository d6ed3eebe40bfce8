"""Worker processes that tests start, kill, stop and continue; none outlives its test."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import contract_tests.workflows.worker_process as program


class Workers:
    """A number of worker processes on one database and one fake cell."""

    def __init__(self, url: str, cell_file: Path, log: Path, *, lease_s: float) -> None:
        self._command = [sys.executable, program.__file__, url, str(cell_file)]
        self._lease_s = lease_s
        self._log = log
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *, lease_s: float | None = None) -> subprocess.Popen[bytes]:
        command = [*self._command, str(lease_s or self._lease_s)]
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.running.remove(process)

    def close(self) -> None:
        for process in list(self.running):
            self.kill(process)


def until(holds: Callable[[], bool], deadline_s: float) -> None:
    """Poll until it holds; a deadline far beyond what is expected, for slow machines."""
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)
