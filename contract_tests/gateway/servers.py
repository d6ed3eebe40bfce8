"""The engines themselves, on unix sockets only, for the gateway to lead to."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
import redis

from contract_tests.gateway.rig import WAIT_S, until

SETTINGS = (
    "--no-defaults",
    "--skip-networking",
    "--max-allowed-packet=64M",
    "--local-infile=1",
    "--innodb-buffer-pool-size=16M",
    "--innodb-flush-log-at-trx-commit=2",
    "--performance-schema=1",
)


class MariaDb:
    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="my"))
        self.socket = self.home / "s"
        self._log = (self.home / "log").open("wb")
        user = ["--user=root"] if os.getuid() == 0 else []
        data = f"--datadir={self.home / 'data'}"
        subprocess.run(
            [
                *("mariadb-install-db", "--no-defaults", "--skip-test-db", data),
                *("--auth-root-authentication-method=normal", *user),
            ],
            check=True,
            stdout=self._log,
            stderr=self._log,
        )
        self.process = subprocess.Popen(
            ["mariadbd", *SETTINGS, data, f"--socket={self.socket}", *user],
            stdout=self._log,
            stderr=self._log,
        )
        until(self._answers, "the MariaDB server answers", 100)

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.home / "log").read_text()[-4_000:]
        # Its socket is there a moment before anybody listens at it.
        with contextlib.suppress(pymysql.err.OperationalError):
            return self.run("SELECT 1") == [(1,)]
        return False

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """As its administrator, past the gateway; what the last statement found."""
        rows: list[tuple[Any, ...]] = []
        with (
            pymysql.connect(
                unix_socket=str(self.socket), user="root", autocommit=True, ssl_disabled=True
            ) as admin,
            admin.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def close(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        self._log.close()
        shutil.rmtree(self.home)


class Resp:
    """redis-server, or valkey-server, which takes the same settings."""

    def __init__(self, program: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="re"))
        self.socket = self.home / "s"
        self.process = subprocess.Popen(
            [
                *(program, "--port", "0", "--unixsocket", str(self.socket), "--save", ""),
                *("--dir", str(self.home), "--requirepass", "secret"),
            ],
            stdout=subprocess.DEVNULL,
        )
        until(self._answers, "the server answers", 60)

    def _answers(self) -> bool:
        try:
            with redis.Redis(unix_socket_path=str(self.socket), password="secret") as client:
                return bool(client.ping())
        except redis.exceptions.ConnectionError:
            return False

    def close(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        shutil.rmtree(self.home)


def run_mariadb() -> Iterator[MariaDb]:
    if not shutil.which("mariadbd") or not shutil.which("mariadb-install-db"):
        pytest.skip("mariadb-server is not installed")
    server = MariaDb()
    try:
        yield server
    finally:
        server.close()


def run_redis() -> Iterator[Resp]:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("neither redis-server nor valkey-server is installed")
    server = Resp(program)
    try:
        yield server
    finally:
        server.close()
