"""Copies of MariaDB's data: while it is written to, for another site, and through kill -9."""

import secrets
import threading
from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest
from ulid import ULID

from cell.engines.driver import EngineError, Login, Snapshot
from cell.engines.mysql import snapshots
from cell.engines.mysql.servers import ServerInstallation
from cell.layout import Layout
from contract_tests.by_day import one_in
from contract_tests.engines.conftest import UID, Subject
from contract_tests.engines.mysql_sessions import (
    administrator,
    driver_of,
    on_mariadb,
    rows,
    session,
)


class Writer:
    """Inserts one row after another, and remembers which were acknowledged."""

    def __init__(self, subject: Subject, table: str = "numbers") -> None:
        self._subject = subject
        self._table = table
        self._end = threading.Event()
        self.acknowledged = 0
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def wait_for(self, count: int) -> int:
        while self.acknowledged < count:
            assert self._thread.is_alive()
            self._end.wait(0.005)
        return self.acknowledged

    def end(self) -> int:
        self._end.set()
        self._thread.join()
        return self.acknowledged

    def _write(self) -> None:
        try:
            with session(self._subject.site, self._subject.login) as cursor:
                while not self._end.is_set():
                    cursor.execute(f"INSERT INTO {self._table} VALUES ({self.acknowledged})")
                    self.acknowledged += 1
        except pymysql.err.MySQLError:
            return


def _snapshot(subject: Subject, target: Path) -> Snapshot:
    making = subject.driver.snapshot(subject.site, subject.process, subject.login, target)
    made = subject.run(making)
    assert isinstance(made, Snapshot)
    return made


def _restored(subject: Subject, folder: Path) -> None:
    subject.stop()
    subject.run(subject.driver.restore(subject.site, folder))
    subject.start()


@pytest.fixture(params=one_in(2, ["backup tool", "held still"]))
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of copying a running server; the tool may be missing here."""
    find: Callable[..., Path | None] = ServerInstallation.tool
    if request.param == "held still":
        monkeypatch.setattr(
            ServerInstallation,
            "tool",
            lambda *names: None if "backup" in names[1] else find(*names),
        )
    return str(request.param)


@pytest.mark.nightly
@on_mariadb
def test_a_copy_has_all_that_was_acknowledged_before(
    running: Subject, way: str, folder: Path
) -> None:
    if way == "backup tool" and _tool(running) is None:
        pytest.skip("mariadb-backup is not installed")
    rows(running, "CREATE TABLE numbers (n INT PRIMARY KEY)")
    rows(running, "CREATE TABLE plain (n INT) ENGINE=MyISAM")
    rows(running, "INSERT INTO plain VALUES (1), (2)")
    writer = Writer(running)
    before = writer.wait_for(50)
    _snapshot(running, folder)
    # It goes on meanwhile or at least afterwards.
    writer.wait_for(writer.acknowledged + 10)
    writer.end()
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    _restored(running, folder)
    found = [n for (n,) in rows(running, "SELECT n FROM numbers ORDER BY n")]
    assert found == list(range(len(found)))
    assert len(found) >= before
    assert rows(running, "CHECK TABLE numbers, plain")[-1][-1] == "OK"
    assert rows(running, "SELECT COUNT(*) FROM plain") == [(2,)]


@pytest.mark.nightly
@on_mariadb
def test_a_branch_takes_no_password_of_its_source(
    running: Subject, layout: Layout, folder: Path
) -> None:
    rows(running, "CREATE TABLE numbers AS SELECT 42 AS n")
    _snapshot(running, folder)
    site = layout.site(f"inst_{ULID()}", UID + 1)
    login = Login("app", secrets.token_urlsafe(32))
    branch = Subject(
        running.driver, running.speaker, running.host, site, running.spec, running.run, login
    )
    site.make(branch.host.owner(site))
    branch.run(branch.driver.restore(site, folder))
    branch.provision()
    branch.start()
    assert rows(branch, "SELECT n FROM numbers") == [(42,)]
    assert not branch.works(running.login)
    assert not branch.works(administrator(running))
    assert branch.works(administrator(branch))
    assert running.works(running.login)
    branch.stop()


@pytest.mark.nightly
@on_mariadb
def test_links_in_the_data_are_not_followed(running: Subject, folder: Path, tmp_path: Path) -> None:
    """A broken engine owns its folder and may put there what it likes."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("canary")
    database = running.site.data.outside / "db" / "app"
    running.stop()
    (database / "file.ibd").symlink_to(outside / "secret")
    (running.site.data.outside / "db" / "folder").symlink_to(outside)
    made = running.run(running.driver.snapshot(running.site, None, running.login, folder))
    assert made.size_bytes > 0
    assert not [path for path in folder.rglob("*") if path.name in ("file.ibd", "folder")]
    # Nor written through: what is restored takes the folder's place.
    running.run(running.driver.restore(running.site, folder))
    (running.site.data.outside / "db.new").symlink_to(outside)
    running.run(running.driver.restore(running.site, folder))
    assert [path.name for path in outside.iterdir()] == ["secret"]
    running.start()
    assert running.works(running.login)


@on_mariadb
def test_a_failed_backup_says_why_and_leaves_nothing(running: Subject, folder: Path) -> None:
    if _tool(running) is None:
        pytest.skip("mariadb-backup is not installed")
    rows(running, "CREATE TABLE numbers (n INT PRIMARY KEY)")
    (running.site.data.outside / "db" / "app" / "numbers.ibd").chmod(0)
    with pytest.raises(EngineError, match="backup failed"):
        _snapshot(running, folder)
    assert not folder.exists()
    assert not folder.with_name("snapshot.part").exists()


@pytest.mark.nightly
@on_mariadb
@pytest.mark.parametrize(
    ("database", "table"),
    [
        ("`a b``c/d`", "`#sql2-a`"),
        pytest.param("`plain`", "`#sql2-``a`", marks=pytest.mark.nightly),
    ],
)
def test_a_name_with_a_backtick_stands_in_the_way_of_no_copy(
    running: Subject, folder: Path, database: str, table: str
) -> None:
    """The backup tool writes it into a statement as it is."""
    name = f"{database}.{table}"
    rows(running, f"CREATE DATABASE {database}")
    rows(running, f"CREATE TABLE {name} (n INT) ENGINE=Aria")
    rows(running, f"INSERT INTO {name} VALUES (4711)")
    _snapshot(running, folder)
    rows(running, f"DROP TABLE {name}")
    _restored(running, folder)
    assert rows(running, f"SELECT n FROM {name}") == [(4711,)]


@pytest.mark.nightly
@on_mariadb
def test_a_session_that_locks_tables_does_not_hold_a_snapshot_for_long(
    running: Subject, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is done with an instance meanwhile: no rotation, no pause, no deletion."""
    if _tool(running) is None:
        pytest.skip("mariadb-backup is not installed")
    monkeypatch.setattr(snapshots, "LOCKED_MAX_S", 0.5)
    rows(running, "CREATE TABLE numbers (n INT) ENGINE=MyISAM")
    with session(running.site, running.login) as cursor:
        cursor.execute("LOCK TABLES numbers WRITE")
        with pytest.raises(EngineError, match="holds tables locked"):
            _snapshot(running, folder)
    assert not folder.exists()
    assert _snapshot(running, folder).size_bytes > 0


@on_mariadb
def test_what_was_acknowledged_survives_kill_under_load(running: Subject) -> None:
    rows(running, "CREATE TABLE numbers (n INT PRIMARY KEY)")
    rows(running, "CREATE TABLE others (n INT PRIMARY KEY)")
    for _ in range(3):
        rows(running, "TRUNCATE numbers")
        rows(running, "TRUNCATE others")
        writers = {table: Writer(running, table) for table in ("numbers", "others")}
        for writer in writers.values():
            writer.wait_for(30)
        running.kill()
        acknowledged = {table: writer.end() for table, writer in writers.items()}
        running.start()
        for table, count in acknowledged.items():
            found = [n for (n,) in rows(running, f"SELECT n FROM {table} ORDER BY n")]
            # One more may have been committed without the word of it coming through.
            assert found in (list(range(count)), list(range(count + 1)))


def _tool(subject: Subject) -> Path | None:
    server = next(iter(driver_of(subject).servers.values()))
    return server.tool("mariadb-backup")
