"""Holds that no number of views and macros keeps a database from starting, or makes it slow."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from contract_tests.duckdb import corpus
from instance_services.duckdb import catalog, refusals, stored
from instance_services.duckdb.allowance import Allowance
from instance_services.duckdb.database import EngineLimits, open_database
from instance_services.duckdb.session import Failed, Session

VIEWS = 20


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "database.duckdb"


@pytest.fixture
def connection(place: Path) -> Iterator[Any]:
    with duckdb.connect(str(place)) as former:
        former.execute('CREATE TABLE "kept.csv" (i INTEGER)')
        for number in range(VIEWS):
            former.execute(f"CREATE VIEW of_a_table_{number} AS FROM 'kept.csv'")
            former.execute(f"CREATE VIEW of_a_text_{number} AS SELECT 'a.csv'")
        former.execute(corpus.STORED)
    connection = open_database(place, place.with_name("temp"), EngineLimits(400_000_000, 1))
    yield connection
    connection.close()


def session_of(connection: Any, place: Path) -> Session:
    return Session(connection, Allowance(place, place.with_name("temp"), None))


def rows(session: Session, sql: str) -> list[Any]:
    found: list[Any] = json.loads(session.answer(sql, []))["rows"]
    return found


NAMED_LIKE_FUNCTIONS = """
CREATE VIEW "read_text" (q) AS SELECT 'é';
CREATE SCHEMA "as (";
CREATE VIEW "as ("."query" ("as", "b (") AS SELECT 1, 2;
CREATE VIEW "glob" (q) AS SELECT * FROM (SELECT 1 AS a) PIVOT (count(*) FOR (a) IN (1, 2));
CREATE MACRO checkpoint(x) AS x + 1;
CREATE MACRO tables(x) AS TABLE SELECT x AS "glob";
"""


def test_what_only_has_the_name_of_a_refused_function_stays(place: Path) -> None:
    with duckdb.connect(str(place)) as former:
        former.execute(NAMED_LIKE_FUNCTIONS)
    with open_database(place, place.with_name("temp"), EngineLimits(400_000_000, 1)) as connection:
        session = session_of(connection, place)
        assert len(rows(session, corpus.WHAT_IS_STORED)) == 5
        assert rows(session, 'FROM "as ("."query"') == [[1, 2]]


def test_a_view_whose_table_is_gone_stays_and_reads_no_file(place: Path) -> None:
    (place.parent / "sales.csv").write_text("x\n4711\n")
    path = str(place.parent / "sales.csv")
    with duckdb.connect(str(place)) as former:
        former.execute(f'CREATE TABLE "{path}" (x INTEGER)')
        former.execute(f'CREATE VIEW totals AS SELECT sum(x) AS s FROM "{path}"')
        former.execute(f'DROP TABLE "{path}"')
    with open_database(place, place.with_name("temp"), EngineLimits(400_000_000, 1)) as connection:
        session = session_of(connection, place)
        with pytest.raises(Failed, match="disabled"):
            session.answer("FROM totals", [])
        session.answer(f'CREATE TABLE "{path}" AS SELECT 3 AS x', [])
        assert rows(session, "FROM totals") == [[3]]


def test_a_start_keeps_what_may_be_run_and_no_more(connection: Any, place: Path) -> None:
    session = session_of(connection, place)
    # A text that only looks like a path is none, whatever tables there are.
    assert rows(session, "SELECT 'a.csv'") == [["a.csv"]]
    assert len(rows(session, corpus.WHAT_IS_STORED)) == 2 * VIEWS + 2


def test_a_check_that_takes_long_goes_on_with_the_next_requests(
    connection: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("START_S", "REQUEST_S"):
        monkeypatch.setattr(refusals, limit, 0.0)
    done = slow_clock(monkeypatch, a_check_takes_s=1.0)
    session = session_of(connection, place)
    # What the cell asks to see that the engine answers, and what the owner can do about it.
    assert rows(session, "SELECT 1") == [[1]]
    session.answer("DROP VIEW of_a_text_0", [])
    with pytest.raises(Failed, match=r"(\d+) views and macros, among them .* have not been ch"):
        session.answer("SELECT 2", [])
    monkeypatch.setattr(refusals, "REQUEST_S", 10.0)
    refused = 0
    while is_refused(session, "SELECT 2"):
        refused += 1
        assert refused < VIEWS
    # All but the one that was dropped, ten at a time, each of them once.
    former = 6
    assert (refused, len(done)) == (4, 2 * VIEWS - 1 + former)
    assert len(rows(session, corpus.WHAT_IS_STORED)) == 2 * VIEWS + 1


def is_refused(session: Session, sql: str) -> bool:
    try:
        session.answer(sql, [])
    except Failed:
        return True
    return False


def slow_clock(monkeypatch: pytest.MonkeyPatch, *, a_check_takes_s: float) -> list[str]:
    """The texts that were checked since; each takes so long by the clock of the check."""
    done: list[str] = []
    checks = refusals.Refusals._is_refused

    def check(self: refusals.Refusals, each: catalog.StoredObject) -> bool:
        done.append(each.sql)
        return checks(self, each)

    monkeypatch.setattr(refusals.Refusals, "_is_refused", check)
    monkeypatch.setattr(time, "process_time", lambda: len(done) * a_check_takes_s)
    return done


def test_the_first_request_after_a_start_is_in_no_transaction(connection: Any, place: Path) -> None:
    session = session_of(connection, place)
    session.answer('ALTER TABLE "kept.csv" ADD COLUMN drawn DOUBLE DEFAULT random()', [])


def test_the_text_of_all_views_and_macros_is_bounded(
    connection: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(connection, place)
    monkeypatch.setattr(stored, "TEXT_BYTES_MAX", 5_000)
    long = "'" + "x" * 1_000 + "'"
    made = 0
    while not is_refused(session, f"CREATE VIEW long_{made} AS SELECT {long}"):
        made += 1
        assert made <= 4
    assert made
    for sql in (f"CREATE MACRO m() AS {long}", f"EXPLAIN ANALYZE CREATE VIEW w AS SELECT {long}"):
        with pytest.raises(Failed, match="DROP some first"):
            session.answer(sql, [])
    session.answer(f"CREATE TABLE view_of_all AS SELECT 'macro', {long}", [])
    session.answer("DROP VIEW long_0", [])
    session.answer("CREATE VIEW again AS SELECT 1", [])


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("PIVOT (SELECT 1 a) ON a USING count(*)", [[1]]),
        ("SELECT * FROM (PIVOT (SELECT 'x' a, 1.5 b) ON a USING sum(b))", [["1.5"]]),
        ("CREATE TABLE p AS PIVOT (SELECT 1 a, 2 b) ON a USING count(*); FROM p", [[2, 1]]),
    ],
)
def test_a_pivot_finds_its_values(
    connection: Any, place: Path, sql: str, found: list[list[Any]]
) -> None:
    assert rows(session_of(connection, place), sql) == found


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("EXPLAIN PIVOT (SELECT 1 a) ON a USING count(*)", "list them: PIVOT t ON a IN"),
        (
            "SELECT 1; CREATE TEMP TYPE x AS ENUM (PIVOT (SELECT 1 a) ON a USING count(*))",
            "a temporary TYPE is not supported",
        ),
        ("COPY (PIVOT (SELECT 1 a) ON a USING count(*)) TO 'x'", "COPY is not supported"),
    ],
)
def test_what_is_refused_is_so_with_a_pivot_in_it(
    connection: Any, place: Path, sql: str, why: str
) -> None:
    with pytest.raises(Failed, match=why):
        session_of(connection, place).answer(sql, [])
