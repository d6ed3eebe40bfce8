"""Holds that a crash after any change of the schema leaves a database that opens, with its rows."""

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from contract_tests.by_day import one_in
from contract_tests.duckdb.process import Service, running
from instance_services.duckdb import recovery
from instance_services.duckdb.allowance import Allowance
from instance_services.duckdb.database import EngineLimits, open_database
from instance_services.duckdb.durable import Changes
from instance_services.duckdb.recovery import Unreadable, open_recovered
from instance_services.duckdb.session import Session

LIMITS = EngineLimits(memory_bytes=200_000_000, threads=1)
BEFORE = """
CREATE MACRO m(x) AS x + 1; CREATE SEQUENCE s; CREATE SCHEMA other; CREATE MACRO other.mm(x) AS x;
CREATE TYPE mood AS ENUM ('x', 'y'); SET VARIABLE v = 3;
CREATE TABLE t (a INTEGER, b VARCHAR, c STRUCT(x INTEGER)); INSERT INTO t VALUES (1, 'x', {'x': 1});
CREATE TABLE defaulting (a INTEGER, b INTEGER DEFAULT (m(1)), g INTEGER AS (a * 2));
"""
DEFAULTS = (
    *("abs(-1)", "random()", "now()::VARCHAR", "m(1)", "nextval('s')", "pg_sleep(0.001)", "1 + 2"),
    *("len([1, 2])", "uuid()::VARCHAR", "getvariable('v')", "length('a' || 'b')", "version()"),
    *(
        "date_part('year', current_date)",
        "json_extract('{}', '$.a')",
        "len(struct_pack(a := [1]).a)",
    ),
)
# Each left a log that could not be replayed, before the log was emptied around such requests.
FORMS = (
    *(f"ALTER TABLE t ADD COLUMN d VARCHAR DEFAULT ({each})" for each in DEFAULTS),
    *(f"ALTER TABLE t ALTER a SET DEFAULT (len(({each})::VARCHAR))" for each in DEFAULTS),
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS d INTEGER DEFAULT (abs(-1))",
    "ALTER TABLE t ADD COLUMN d TIMESTAMP DEFAULT current_timestamp",
    "ALTER TABLE t ADD COLUMN d INTERVAL DEFAULT INTERVAL 1 DAY",
    "ALTER TABLE t ADD COLUMN d INTEGER[] DEFAULT ([1, 2])",
    "ALTER TABLE t ADD COLUMN d VARCHAR COLLATE nocase DEFAULT (upper('q'))",
    "ALTER TABLE t ADD COLUMN c.y INTEGER DEFAULT (abs(-1))",
    "ALTER TABLE t ADD COLUMN c.y INTEGER; ALTER TABLE t DROP COLUMN c.x",
    "ALTER TABLE t RENAME COLUMN c.x TO z",
    "ALTER TABLE t ALTER a TYPE BIGINT USING (m(a))",
    "ALTER TABLE t ALTER a TYPE VARCHAR USING (a::VARCHAR || nextval('s'))",
    "ALTER TABLE t ALTER b TYPE mood",
    "ALTER TABLE t ALTER b TYPE JSON USING to_json(b)",
    "ALTER TABLE t ADD PRIMARY KEY (a); ALTER TABLE t ADD COLUMN k INTEGER DEFAULT (abs(-3))",
    "ALTER TABLE defaulting ADD COLUMN q INTEGER",
    "ALTER TABLE defaulting RENAME COLUMN a TO aa",
    "USE other; CREATE TABLE u (a INTEGER); ALTER TABLE u ADD COLUMN b INTEGER DEFAULT (mm(2))",
    "CREATE SCHEMA q; CREATE TYPE q.ty AS ENUM ('a'); USE q; CREATE TABLE z (a ty)",
    "BEGIN; ALTER TABLE t ALTER b SET DEFAULT (upper('x')); ALTER TABLE t ADD COLUMN d INT; COMMIT",
    "ALTER TABLE t ADD COLUMN d INTEGER DEFAULT (abs(-1)); SELECT * FROM nothing",
)
# Replayed by no engine: the macro that it calls cannot be found before the database is open.
HOPELESS = "ALTER TABLE t ALTER a TYPE BIGINT USING (m(a))"


def _begun(home: Path) -> Iterator[tuple[Any, Session]]:
    database, spill = home / "database.duckdb", home / "temp"
    connection = open_database(database, spill, LIMITS)
    session = Session(connection, Allowance(database, spill, None))
    session.answer(BEFORE, [])
    session.answer("CHECKPOINT", [])
    yield connection, session
    connection.close()


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[tuple[Any, Session]]:
    (tmp_path / "home").mkdir()
    yield from _begun(tmp_path / "home")


def _crashed(home: Path) -> Path:
    """What a crash at this moment would leave: what is in the files."""
    left = home.with_name("crashed")
    shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(home, left)
    return left / "database.duckdb"


@pytest.mark.parametrize("sql", one_in(7, FORMS))
def test_a_crash_after_a_change_of_the_schema(
    begun: tuple[Any, Session], tmp_path: Path, sql: str
) -> None:
    connection, session = begun
    session.answer("INSERT INTO t (a, b) VALUES (2, 'y')", [])
    with contextlib.suppress(Exception):
        session.answer(sql, [])
    session.answer("INSERT INTO main.t (a) VALUES (3)", [])
    kept = connection.execute("FROM main.t").fetchall()
    left = _crashed(tmp_path / "home")
    # By the engine alone, without what is done where it cannot.
    opened = open_database(left, left.with_name("temp"), LIMITS)
    assert opened.execute("FROM main.t").fetchall() == kept
    assert len(kept) == 3
    opened.close()


@pytest.mark.parametrize("sql", one_in(8, FORMS))
def test_a_crash_in_the_middle_loses_nothing_that_was_acknowledged(
    begun: tuple[Any, Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    _, session = begun
    session.answer("INSERT INTO t (a, b) VALUES (2, 'y')", [])
    left: list[Path] = []
    write = Changes._write

    def crash(changes: Changes) -> None:
        left.append(_crashed(tmp_path / "home"))
        write(changes)

    monkeypatch.setattr(Changes, "_write", crash)
    with contextlib.suppress(Exception):
        session.answer(sql, [])
    opened = open_recovered(left[0], left[0].with_name("temp"), LIMITS)
    assert opened.execute("SELECT b FROM main.t ORDER BY ALL").fetchall() in (
        [("x",), ("y",)],
        [('"x"',), ('"y"',)],
    )
    assert not list(left[0].parent.glob("*.unacknowledged"))
    opened.close()


def test_a_change_that_cannot_be_replayed_is_undone_and_told(
    begun: tuple[Any, Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, session = begun
    left: list[Path] = []
    monkeypatch.setattr(Changes, "_write", lambda _: left.append(_crashed(tmp_path / "home")))
    session.answer(HOPELESS, [])
    opened = open_recovered(left[0], left[0].with_name("temp"), LIMITS)
    assert opened.execute("SELECT typeof(a) FROM t").fetchall() == [("INTEGER",)]
    notice = (left[0].parent / recovery.NOTICE).read_text()
    assert "had not been acknowledged, and nothing else is missing" in notice
    assert len(list(left[0].parent.glob("database.duckdb.wal.*Z"))) == 1
    opened.close()


def test_what_the_engine_cannot_replay_as_it_opens_is_replayed(
    begun: tuple[Any, Session], tmp_path: Path
) -> None:
    connection, _ = begun
    # Past the service, as an earlier version of it wrote.
    connection.execute("ALTER TABLE t ADD COLUMN d DOUBLE DEFAULT random()")
    connection.execute("INSERT INTO t (b) VALUES ('later')")
    kept = connection.execute("FROM t").fetchall()
    left = _crashed(tmp_path / "home")
    with pytest.raises(duckdb.Error, match="replaying WAL"):
        open_database(left, left.with_name("temp"), LIMITS)
    opened = open_recovered(left, left.with_name("temp"), LIMITS)
    assert opened.execute("FROM t").fetchall() == kept
    assert not list(left.parent.glob("*.wal.*"))
    opened.close()


def test_what_was_acknowledged_is_given_up_only_where_that_is_allowed(
    begun: tuple[Any, Session], tmp_path: Path
) -> None:
    connection, _ = begun
    connection.execute(HOPELESS)
    connection.execute("INSERT INTO t (b) VALUES ('later')")
    left = _crashed(tmp_path / "home")
    log = left.with_name("database.duckdb.wal")
    written = log.read_bytes()
    for _ in range(2):
        with pytest.raises(Unreadable, match="cannot be replayed; nothing is deleted"):
            open_recovered(left, left.with_name("temp"), LIMITS)
        assert log.read_bytes() == written
    told = left.with_name(recovery.TROUBLE).read_text()
    assert "ask whoever runs this service" in told
    assert str(tmp_path) not in told
    left.with_name(recovery.ALLOWED).touch()
    opened = open_recovered(left, left.with_name("temp"), LIMITS)
    assert opened.execute("SELECT b FROM t").fetchall() == [("x",)]
    (aside,) = left.parent.glob("database.duckdb.wal.*Z")
    assert aside.read_bytes() == written
    assert "was set aside at" in left.with_name(recovery.NOTICE).read_text()
    # Allowed once, and not for whatever comes.
    assert not left.with_name(recovery.ALLOWED).exists()
    assert not left.with_name(recovery.TROUBLE).exists()
    opened.close()


# Ends the process where the engine replays, as a fault of the engine would.
ENDS = """
import os, sys
from pathlib import Path
from instance_services.duckdb import recovery
from instance_services.duckdb.database import EngineLimits
recovery.open_database = lambda *_: os.kill(os.getpid(), 9)
limits = EngineLimits(memory_bytes=1, threads=1)
recovery.open_recovered(Path(sys.argv[1]), Path(sys.argv[2]), limits)
"""


def _ended_in_it(database: Path) -> str:
    words = [sys.executable, "-c", ENDS, str(database), str(database.with_name("temp"))]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert not database.with_name(recovery.TROUBLE).exists()
    return database.with_name(recovery.OPENING).read_text()


def test_a_process_that_ends_in_a_replay_has_said_so_and_may_do_without(
    begun: tuple[Any, Session], tmp_path: Path
) -> None:
    connection, _ = begun
    connection.execute("INSERT INTO t (b) VALUES ('later')")
    left = _crashed(tmp_path / "home")
    # Also where it is allowed before the first time that it ends.
    left.with_name(recovery.ALLOWED).touch()
    told = _ended_in_it(left)
    assert "ended while it replayed the log" in told
    assert "ask whoever runs this service" in told
    opened = open_recovered(left, left.with_name("temp"), LIMITS)
    assert opened.execute("SELECT b FROM t").fetchall() == [("x",)]
    assert not left.with_name(recovery.OPENING).exists()
    assert not left.with_name(recovery.ALLOWED).exists()
    assert len(list(left.parent.glob("database.duckdb.wal.*Z"))) == 1
    opened.close()


@pytest.mark.nightly
def test_a_replay_that_ended_once_is_tried_again(
    begun: tuple[Any, Session], tmp_path: Path
) -> None:
    connection, _ = begun
    connection.execute("INSERT INTO t (b) VALUES ('later')")
    left = _crashed(tmp_path / "home")
    _ended_in_it(left)
    opened = open_recovered(left, left.with_name("temp"), LIMITS)
    assert opened.execute("SELECT b FROM t").fetchall() == [("x",), ("later",)]
    opened.close()


@pytest.mark.nightly
def test_a_log_is_not_given_up_for_want_of_memory(
    begun: tuple[Any, Session], tmp_path: Path
) -> None:
    connection, _ = begun
    connection.execute(
        "INSERT INTO t SELECT range, repeat(md5(range::VARCHAR), 9), NULL FROM range(15000)"
    )
    connection.execute("UPDATE t SET b = b || 'z'")
    left = _crashed(tmp_path / "home")
    log = left.with_name("database.duckdb.wal")
    written_bytes = log.stat().st_size
    for name in (recovery.ALLOWED, "database.duckdb.unacknowledged"):
        left.with_name(name).touch()
    with pytest.raises(duckdb.Error, match="MiB used"):
        open_recovered(
            left, left.with_name("temp"), EngineLimits(memory_bytes=3_000_000, threads=1)
        )
    assert log.stat().st_size == written_bytes
    opened = open_recovered(left, left.with_name("temp"), LIMITS)
    assert opened.execute("SELECT count(*) FROM t").fetchall() == [(15001,)]
    assert left.with_name(recovery.ALLOWED).exists()
    opened.close()


@pytest.mark.nightly
def test_kill_9_after_a_default_that_calls_a_macro(own_service: Service) -> None:
    service = own_service
    service.query("CREATE MACRO m(x) AS x + 1; CREATE TABLE t AS SELECT 42 AS i")
    service.query("ALTER TABLE t ADD COLUMN d INTEGER DEFAULT (m(1))")
    service.query("INSERT INTO t (i) VALUES (43)")
    service.end(signal.SIGKILL)
    service.start()
    assert service.rows("FROM t ORDER BY i") == [[42, 2], [43, 2]]


def test_a_computed_default_within_a_transaction_is_refused_plainly(service: Service) -> None:
    service.query("CREATE TABLE whole (i INTEGER)")
    sql = "BEGIN; ALTER TABLE whole ADD COLUMN d INTEGER DEFAULT (abs(-1)); COMMIT"
    assert "cannot be part of a transaction" in service.error(sql)


@pytest.mark.nightly
def test_the_log_of_a_start_that_failed_tells_nothing_of_the_machine(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for connection, _ in _begun(home):
        connection.execute(HOPELESS)
        left = _crashed(home)
    with pytest.raises(AssertionError), running(left.parent):
        pass
    told = (left.parent / "log").read_text()
    assert "cannot be replayed; nothing is deleted" in told
    for word in ("Traceback", "Stack Trace", "/", "0x"):
        assert word not in told
