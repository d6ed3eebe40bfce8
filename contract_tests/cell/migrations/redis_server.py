"""A Redis or Valkey that is no instance: on loopback, with TLS of a CA of its own, and users."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis

from cell.engines.resp.servers import valkey_servers
from contract_tests.cell.migrations.source_server import free_port, write_certificates

PASSWORD = "sEcReT of the source"


@dataclass
class RedisServer:
    program: str
    folder: Path
    port: int
    tls_port: int
    ca_pem: str
    has_tls: bool = True
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def uri(self, user: str = "", *, tls: bool = True, password: str = PASSWORD) -> str:
        scheme, port = ("rediss", self.tls_port) if tls else ("redis", self.port)
        secret = password.replace(" ", "%20")
        return f"{scheme}://{user}:{secret}@127.0.0.1:{port}"

    def client(self, database: int = 0) -> redis.Redis:
        return redis.Redis(port=self.port, password=PASSWORD, db=database)

    def start(self) -> None:
        command = [self.program, str(self.folder / "redis.conf")]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(200):
            try:
                self.client().ping()
            except (redis.exceptions.ConnectionError, redis.exceptions.BusyLoadingError):
                assert self.process.poll() is None, "the server ended"
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def program_of(engine: str) -> str:
    found = shutil.which("redis-server") if engine == "redis" else None
    if engine == "valkey" and (servers := valkey_servers()):
        found = str(servers[0].binary)
    if found is None:
        pytest.skip(f"no {engine}-server on this machine")
    return found


@contextmanager
def running(folder: Path, *, diskless: bool, engine: str = "redis") -> Iterator[RedisServer]:
    program = program_of(engine)
    folder.mkdir()
    ca_pem = write_certificates(folder)
    # Valkey's wheel has no TLS.
    made = RedisServer(program, folder, free_port(), free_port(), ca_pem, engine == "redis")
    settings = {
        "port": made.port,
        "bind": "127.0.0.1",
        "dir": folder,
        "requirepass": f'"{PASSWORD}"',
        "save": '""',
        "repl-diskless-sync": "yes" if diskless else "no",
        "repl-diskless-sync-delay": 1,
        "repl-backlog-size": 64 * 2**20,
        "enable-debug-command": "local",
    }
    if made.has_tls:
        settings |= {
            "tls-port": made.tls_port,
            "tls-cert-file": folder / "server.crt",
            "tls-key-file": folder / "server.key",
            "tls-auth-clients": "no",
        }
    content = "".join(f"{name} {value}\n" for name, value in settings.items())
    (folder / "redis.conf").write_text(content)
    made.start()
    try:
        yield made
    finally:
        made.kill()
