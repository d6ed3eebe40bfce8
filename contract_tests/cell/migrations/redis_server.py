"""A Redis that is no instance: on loopback, with TLS of a CA of its own, and users."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from contract_tests.cell.migrations.source_server import free_port, write_certificates

PASSWORD = "sEcReT of the source"


@dataclass
class RedisServer:
    port: int
    tls_port: int
    ca_pem: str

    def uri(self, user: str = "", *, tls: bool = True, password: str = PASSWORD) -> str:
        scheme, port = ("rediss", self.tls_port) if tls else ("redis", self.port)
        secret = password.replace(" ", "%20")
        return f"{scheme}://{user}:{secret}@127.0.0.1:{port}"

    def client(self, database: int = 0) -> redis.Redis:
        return redis.Redis(port=self.port, password=PASSWORD, db=database)


@contextmanager
def running(folder: Path, *, diskless: bool) -> Iterator[RedisServer]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server on this machine")
    folder.mkdir()
    ca_pem = write_certificates(folder)
    made = RedisServer(free_port(), free_port(), ca_pem)
    settings = {
        "port": made.port,
        "tls-port": made.tls_port,
        "bind": "127.0.0.1",
        "dir": folder,
        "tls-cert-file": folder / "server.crt",
        "tls-key-file": folder / "server.key",
        "tls-auth-clients": "no",
        "requirepass": f'"{PASSWORD}"',
        "save": '""',
        "repl-diskless-sync": "yes" if diskless else "no",
        "repl-diskless-sync-delay": 1,
    }
    content = "".join(f"{name} {value}\n" for name, value in settings.items())
    (folder / "redis.conf").write_text(content)
    process = subprocess.Popen([program, str(folder / "redis.conf")], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                made.client().ping()
                break
            except redis.exceptions.ConnectionError:
                time.sleep(0.05)
        yield made
    finally:
        process.kill()
        process.wait()
