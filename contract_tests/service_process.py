"""An instance service as a process on a unix socket, which tests start, ask and end."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from contract_tests.forked import Forked

DEADLINE_S = 60.0


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for the condition; there is no other way to wait in these tests."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"waited {DEADLINE_S} s for {what}"
        time.sleep(0.01)


@contextlib.contextmanager
def socket_path() -> Iterator[Path]:
    """A short one, as the kernel wants."""
    folder = Path(tempfile.mkdtemp(prefix="is"))
    try:
        yield folder / "s"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class ServiceProcess(ABC):
    home: Path
    socket: Path
    options: list[str] = field(default_factory=list)
    process: "subprocess.Popen[bytes] | Forked | None" = None

    @abstractmethod
    def client(self, credential: str | None) -> httpx.Client:
        """Without a credential, one that is let in nowhere but to see whether it is healthy."""

    @property
    def log(self) -> Path:
        return self.home / "log"

    @property
    def transport(self) -> httpx.HTTPTransport:
        # No TLS on a socket: to load the authorities for it would take longer than most requests.
        return httpx.HTTPTransport(uds=str(self.socket), verify=False)

    def end(self, with_signal: int) -> int:
        """With all the processes that it has started."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, with_signal)
        return self.process.wait(DEADLINE_S)

    def kill(self) -> None:
        """Where it runs."""
        if self.process is not None and self.process.poll() is None:
            self.end(signal.SIGKILL)

    def is_healthy(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            with self.client(None) as client:
                return client.get("/health").status_code == 200
        except httpx.TransportError:
            return False
