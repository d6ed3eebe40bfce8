"""Files of transactions that a crash cut short are removed; those of anybody else are not."""

import asyncio
import os
import signal
from pathlib import Path

import psycopg
import pytest

from cell.engines.driver import Room
from cell.engines.postgres import PostgreSQL, unowned_files
from cell.runtime.engine_files import EnginePath
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import (
    ask,
    every_version,
    newest,
    session,
    superuser,
    value,
)

ROWS = 20_000
# Of all kinds of files: forks, indexes, what is kept apart, what a crash empties.
KEPT = (
    "CREATE TABLE kept AS SELECT g AS n, repeat('x', 300) AS t FROM generate_series(1, 20000) AS g",
    "CREATE INDEX ON kept (n)",
    "CREATE TABLE wide (t text)",
    "ALTER TABLE wide ALTER t SET STORAGE external",
    "INSERT INTO wide SELECT repeat('y', 10000) FROM generate_series(1, 20)",
    "CREATE UNLOGGED TABLE quick AS SELECT 1 AS n",
    "CREATE SEQUENCE numbers",
    "CREATE MATERIALIZED VIEW seen AS SELECT count(*) FROM kept",
    "TRUNCATE quick",
    "VACUUM FULL wide",
    "VACUUM kept",
)
# An owner's words for what is asked of the server.
MISLEADING = (
    "CREATE VIEW public.pg_class AS SELECT 1::oid AS oid, 1::oid AS relfilenode WHERE false",
    "CREATE FUNCTION public.pg_relation_filenode(oid) RETURNS oid LANGUAGE sql AS 'SELECT 1::oid'",
    "CREATE FUNCTION public.equal(bigint, oid) RETURNS bool LANGUAGE sql AS 'SELECT false'",
    "CREATE OPERATOR public.= (FUNCTION = public.equal, LEFTARG = bigint, RIGHTARG = oid)",
    "ALTER DATABASE app SET search_path = public, pg_catalog",
    "ALTER DATABASE app SET default_transaction_isolation = serializable",
)
# The number of this one is kept elsewhere than in the catalog, and is not the first that it had.
MOVED = ("VACUUM FULL pg_catalog.pg_class", "VACUUM FULL pg_catalog.pg_proc")
LOST = "CREATE TABLE lost AS SELECT repeat('z', 2000) AS t FROM generate_series(1, 4000)"
PLACE = "SELECT pg_relation_filepath('lost')"
NUMBER = "4200000000"
ROOM = Room(0, 0, 0)


def clear(subject: Subject) -> bool:
    return bool(subject.run(unowned_files.clear(subject.site, superuser(subject))))


def outside(subject: Subject, place: str) -> Path:
    return (subject.site.data / place).outside


def folder(subject: Subject) -> Path:
    oid = value(subject, "SELECT oid FROM pg_database WHERE datname = 'app'")
    return outside(subject, f"base/{oid}")


def fill(subject: Subject) -> None:
    for statement in (*KEPT, *MISLEADING):
        ask(subject, statement)
    for statement in MOVED:
        ask(subject, statement, superuser(subject))
    ask(subject, "CREATE DATABASE other TEMPLATE app")


def names(within: Path) -> set[str]:
    return {each.name for each in within.iterdir()}


def is_whole(subject: Subject) -> None:
    """As whoever reads all of it sees."""
    for database in ("app", "other"):
        with session(subject, database=database) as connection:
            connection.execute("SET enable_indexscan = off; SET enable_indexonlyscan = off")
            found = connection.execute(
                "SELECT (SELECT sum(length(t)) FROM kept), (SELECT sum(length(t)) FROM wide),"
                " (SELECT count(*) FROM quick), nextval('numbers'), (SELECT count FROM seen)"
            ).fetchone()
            assert found is not None
            assert found[:3] == (300 * ROWS, 200_000, 0)
            assert found[4] == ROWS
            connection.execute("RESET ALL; SET enable_seqscan = off")
            one = connection.execute("SELECT n FROM kept WHERE n = 777").fetchone()
            assert one == (777,)
            connection.execute("REINDEX TABLE kept")


def lose(subject: Subject) -> Path:
    """The file of a table whose transaction the server did not live to see the end of."""
    connection = session(subject)
    connection.execute("BEGIN")
    connection.execute(LOST.encode())
    row = connection.execute(PLACE.encode()).fetchone()
    assert row is not None
    ask(subject, "CHECKPOINT", superuser(subject))
    os.kill(subject.outside(connection.info.backend_pid), signal.SIGKILL)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    subject.run(subject._until_ready())
    return outside(subject, row[0])


async def looked_after(subject: Subject, lost: Path) -> None:
    assert isinstance(subject.driver, PostgreSQL)
    async with asyncio.timeout(60):
        while await asyncio.to_thread(lost.exists):
            await subject.driver.hold_writes(subject.site, ROOM)
            await asyncio.sleep(0.05)


@pytest.mark.nightly
@every_version
def test_after_a_crash_what_no_relation_owns_is_removed(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject.start()
    fill(subject)
    assert isinstance(subject.driver, PostgreSQL)
    monkeypatch.setattr(subject.driver.unowned_files, "begins_after_s", 0.0)
    subject.run(subject.driver.hold_writes(subject.site, ROOM))
    # Also by a server that goes on by itself, as after a session that took too much memory.
    lost = lose(subject)
    assert lost.stat().st_size > 0
    subject.run(looked_after(subject, lost))
    is_whole(subject)
    subject.stop()
    subject.start()
    assert clear(subject)
    is_whole(subject)


# By day what a crash left.
@pytest.mark.nightly
@newest
def test_what_a_transaction_has_made_stays_whatever_the_clock_says(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject.start()
    fill(subject)
    # All files count as those from before the start.
    monkeypatch.setattr(unowned_files, "CLOCKS_DIFFER_S", -(10.0**6))
    monkeypatch.setattr(unowned_files, "ENDED_WITHIN_S", 0.5)
    with session(subject) as connection:
        connection.execute("BEGIN")
        connection.execute(LOST)
        connection.execute("ALTER TABLE kept ALTER n TYPE bigint")
        assert not clear(subject)
        connection.execute("COMMIT")
        assert clear(subject)
        assert connection.execute("SELECT count(*) FROM lost").fetchone() == (4000,)
        row = connection.execute(PLACE).fetchone()
        assert row is not None
        # Its number is not given again before a checkpoint.
        connection.execute("DROP TABLE lost")
        assert clear(subject)
        assert outside(subject, row[0]).stat().st_size == 0
    is_whole(subject)


# By day what a crash left.
@pytest.mark.nightly
@newest
def test_only_files_from_before_the_start_are_removed(subject: Subject) -> None:
    subject.start()
    fill(subject)
    within = folder(subject)
    goes = [NUMBER, f"{NUMBER}.1", f"{NUMBER}_fsm", f"{NUMBER}_vm", f"{NUMBER}_init"]
    stays = [
        *("4200000001_fsm", "4200000002.1", "04200000003", "4200000004.0", "4200000005_x"),
        *("9999999999", "4200000007.01", "x", "4200000008 "),
    ]
    for name in (*goes, *stays):
        (within / name).write_bytes(b"x" * 8192)
    (within / "4200000009").write_bytes(b"")
    (within / "4200000010").symlink_to(within / "PG_VERSION")
    (within / "4200000011").mkdir()
    there = names(within)
    assert clear(subject)
    assert names(within) >= {*goes, *stays}
    subject.stop()
    subject.start()
    assert clear(subject)
    assert there - names(within) >= set(goes)
    assert names(within) >= {*stays, "4200000009", "4200000010", "4200000011"}
    is_whole(subject)


def test_a_file_that_is_another_one_meanwhile_stays(tmp_path: Path) -> None:
    for name in ("17000", "17000.1", "17001", "17002"):
        (tmp_path / name).write_bytes(b"before")
    (tmp_path / "17003").hardlink_to(tmp_path / "17002")
    place = EnginePath(tmp_path)
    found = unowned_files.listed(place)
    assert set(found) == {17000, 17001}
    (tmp_path / "17000.1").write_bytes(b"after!")
    (tmp_path / "17001").unlink()
    (tmp_path / "17001").write_bytes(b"before")
    assert unowned_files.remove(place, found[17000], "17000") == 0
    assert unowned_files.remove(place, found[17001], "17001") == 0
    assert (tmp_path / "17000").read_bytes() == b"before"
    assert (tmp_path / "17001").read_bytes() == b"before"
    fresh = unowned_files.listed(place)
    assert unowned_files.remove(place, fresh[17000], "17000") == 12
    assert not (tmp_path / "17000").exists()
