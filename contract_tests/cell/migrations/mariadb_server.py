"""A MariaDB that is no instance: another user's, on loopback, with TLS of a CA of its own."""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymysql
import pytest

from contract_tests.cell.migrations.source_server import free_port, write_certificates

PASSWORD = "sEcReT: \\of' the source"
USER, PLAIN, READER = "owner", "plain", "reader"
READY_WITHIN_S = 60.0
SETTINGS = (
    *("--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0"),
    *("--log-bin=log", "--server-id=7", "--binlog-format=ROW"),
    *("--bind-address=127.0.0.1", "--innodb-use-native-aio=0", "--require-secure-transport=OFF"),
    *(
        "--tmpdir=.",
        "--performance-schema=OFF",
        "--character-set-server=utf8mb4",
        "--local-infile=ON",
    ),
)


@dataclass
class MariaDBServer:
    folder: Path
    port: int
    ca_pem: str
    settings: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def connect(self, database: str | None = None) -> "pymysql.connections.Connection[Any]":
        return pymysql.connect(
            unix_socket=str(self.folder / "socket"),
            user="root",
            database=database,
            autocommit=True,
        )

    def ask(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of the last one."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            for each in statements:
                cursor.execute(each)
            return list(cursor.fetchall())

    def new_database(self) -> "MariaDBDatabase":
        name = f"shop_{secrets.token_hex(4)}"
        self.ask(f"CREATE DATABASE {name}")
        return MariaDBDatabase(self, name)

    def start(self) -> None:
        words = [f"--datadir={self.folder / 'data'}", f"--socket={self.folder / 'socket'}"]
        words += [f"--port={self.port}", f"--pid-file={self.folder / 'pid'}"]
        words += [f"--ssl-key={self.folder / 'server.key'}"]
        words += [f"--ssl-cert={self.folder / 'server.crt'}", f"--log-error={self.folder}/log.err"]
        words += [*SETTINGS, *self.settings]
        program = [*_as_nobody(), _program("mariadbd"), "--no-defaults", *words]
        self.process = subprocess.Popen(program, cwd=self.folder)
        began = time.monotonic()
        while not self.answers():
            assert self.process.poll() is None, (self.folder / "log.err").read_text()[-2000:]
            assert time.monotonic() - began < READY_WITHIN_S
            time.sleep(0.02)

    def answers(self) -> bool:
        try:
            self.connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def kill(self) -> None:
        """Every session ends where it is."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class MariaDBDatabase:
    """One of the server's, for one test."""

    server: MariaDBServer
    name: str

    @property
    def ca_pem(self) -> str:
        return self.server.ca_pem

    @property
    def uri(self) -> str:
        return self.as_user(USER)

    def as_user(self, user: str, database: str | None = None, password: str = PASSWORD) -> str:
        """As it stands there, `ssl-mode` would turn TLS off: it has no effect."""
        name = self.name if database is None else database
        where = f"localhost:{self.server.port}/{name}"
        return f"mariadb://{user}:{quote(password, safe='')}@{where}?ssl-mode=DISABLED"

    def ask(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.ask(*statements, database=self.name)

    def sessions(self) -> int:
        """Of those that migrations log in as."""
        found = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER NOT IN ('root', %s)"
        ((count,),) = self.ask(found % "'event_scheduler', 'system user'")
        return int(count)


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"no {name} on this machine")
    return found


def _as_nobody() -> list[str]:
    if os.geteuid():
        return []
    uid = str(pwd.getpwnam("nobody").pw_uid)
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]


@contextmanager
def running(*settings: str) -> Iterator[MariaDBServer]:
    """With `owner`, who has all rights on databases, and root, who logs in on the socket."""
    # Not in pytest's folder, which each pytest that begins shuts to all but its user: the server
    # opens files by their whole path.
    with tempfile.TemporaryDirectory(prefix="source-") as made:
        folder = Path(made)
        ca_pem = write_certificates(folder)
        if not os.geteuid():
            for path in (folder, *folder.iterdir()):
                shutil.chown(path, "nobody")
        _install(folder)
        server = MariaDBServer(folder, free_port(), ca_pem, settings)
        try:
            server.start()
            server.ask(*_users())
            yield server
            # Nothing that a migration asks ends a server.
            ended = server.process and server.process.poll()
            assert ended is None, (folder / "log.err").read_text()[-5000:]
        finally:
            server.kill()


def _install(folder: Path) -> None:
    words = ["--no-defaults", f"--datadir={folder / 'data'}", f"--tmpdir={folder}"]
    words += ["--skip-test-db", "--auth-root-authentication-method=normal"]
    words += ["--innodb-use-native-aio=0"]
    command = [*_as_nobody(), _program("mariadb-install-db"), *words]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)


def _users() -> list[str]:
    secret = PASSWORD.replace("\\", "\\\\").replace("'", "''")
    return [
        f"CREATE USER {USER}@'%' IDENTIFIED BY '{secret}' REQUIRE SSL",
        f"GRANT SELECT, SHOW VIEW, TRIGGER, EVENT, EXECUTE ON `shop\\_%`.* TO {USER}@'%'",
        f"GRANT SELECT ON mysql.proc TO {USER}@'%'",
        f"GRANT REPLICATION SLAVE ON *.* TO {USER}@'%'",
        # Without TLS, and with few rights.
        f"CREATE USER {PLAIN}@'%' IDENTIFIED BY '{secret}'",
        f"GRANT ALL PRIVILEGES ON `shop\\_%`.* TO {PLAIN}@'%'",
        f"GRANT REPLICATION SLAVE ON *.* TO {PLAIN}@'%'",
        f"CREATE USER {READER}@'%' IDENTIFIED BY '{secret}'",
    ]
