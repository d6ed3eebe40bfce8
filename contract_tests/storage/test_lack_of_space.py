"""What an operator is told where the database cannot serve, and before: of space, of outages."""

import sqlite3
from types import SimpleNamespace

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

import storage.database
from contract_tests.databases import Databases
from storage.database import FREE_MIN_BYTES, FULL_FOR_S, Database, _outage
from storage.errors import StorageUnavailable


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "database or disk is full",
            "the database has no space left",
        ),
        (
            "could not extend file: No space left on device",
            "the database has no space left",
        ),
        ("database is locked", "the database is busy with other writes"),
        ("database table is busy", "the database is busy with other writes"),
        ("connection refused", "the database cannot be reached"),
    ],
)
def test_an_outage_is_told_in_words_for_who_looks_after_it(said: str, told: str) -> None:
    assert _outage(sqlite3.OperationalError(said)) == told
    assert _outage(OperationalError("SELECT 1", None, sqlite3.OperationalError(said))) == told


def test_a_statement_is_not_taken_for_the_outage_that_it_met() -> None:
    error = sqlite3.OperationalError("connection refused")
    told = _outage(OperationalError("SELECT full_name FROM busy", None, error))
    assert told == "the database cannot be reached"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The space and the time that the process is told of: it may set both."""
    told = SimpleNamespace(free=FREE_MIN_BYTES, monotonic=0.0)
    usage = SimpleNamespace(disk_usage=lambda _path: SimpleNamespace(free=told.free))
    clock = SimpleNamespace(monotonic=lambda: told.monotonic)
    monkeypatch.setattr(storage.database, "shutil", usage)
    monkeypatch.setattr(storage.database, "time", clock)
    return told


def test_short_space_is_told_before_a_write_fails(
    databases: Databases, disk: SimpleNamespace
) -> None:
    database = Database(databases.empty("sqlite").replace(".db", "/a/new/folder.db"))
    with database.read() as db:
        assert db.scalar(text("SELECT 1")) == 1
    elsewhere = Database("postgresql://nobody@/none?host=/nonexistent")
    assert database.lacks_space() is None
    disk.free = 5 * 2**20 + 1
    told = "5 MiB are free on the database's disk; free some space on it"
    assert database.lacks_space() == told
    assert elsewhere.lacks_space() is None


def test_a_write_that_failed_for_lack_of_space_is_told_for_a_while(
    databases: Databases, disk: SimpleNamespace
) -> None:
    database = Database(databases.empty("sqlite"))
    assert database.lacks_space() is None
    for said, lacks in (("database is locked", False), ("disk is full", True)):
        with pytest.raises(StorageUnavailable), database.write():
            raise OperationalError("INSERT", None, sqlite3.OperationalError(said))
        assert (database.lacks_space() is not None) == lacks
    told = "a write failed for lack of disk space; free some space on the database's disk"
    disk.monotonic += FULL_FOR_S - 1
    assert database.lacks_space() == told
    disk.monotonic += 1
    assert database.lacks_space() is None
    database.dispose()
