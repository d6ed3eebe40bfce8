"""Holds the filter of statements against the engine: what is not listed is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from contract_tests.by_day import one_in
from contract_tests.duckdb import corpus
from instance_services.duckdb.allowance import Allowance
from instance_services.duckdb.database import EngineLimits, open_database
from instance_services.duckdb.reference import Reference
from instance_services.duckdb.refusals import OFFERED, PRAGMAS, STATEMENTS, Refusals, Refused
from instance_services.duckdb.session import Session


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@pytest.fixture(scope="module")
def refusals(connection: duckdb.DuckDBPyConnection) -> Refusals:
    return Refusals(connection, Reference())


def test_each_function_of_this_version_is_classified() -> None:
    # A new version of the engine fails here: decide of each new function whether it is offered.
    assert Reference().functions() == OFFERED | corpus.REFUSED_FUNCTIONS
    assert not OFFERED & corpus.REFUSED_FUNCTIONS


def test_each_kind_of_statement_of_this_version_is_classified() -> None:
    assert set(duckdb.StatementType.__members__) == STATEMENTS | corpus.REFUSED_STATEMENTS


def test_each_pragma_of_this_version_is_classified(connection: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'pragma'"
    found = {name for (name,) in connection.execute(sql).fetchall()}
    assert found == PRAGMAS | corpus.REFUSED_PRAGMAS


@pytest.mark.parametrize("sql", corpus.CALLS)
def test_a_call_of_what_is_not_offered_is_refused(refusals: Refusals, sql: str) -> None:
    with pytest.raises(Refused, match="is not supported"):
        refusals.check_text(sql)


@pytest.mark.parametrize("sql", corpus.NO_CALLS)
def test_what_is_only_named_so_is_not(refusals: Refusals, sql: str) -> None:
    refusals.check_text(sql)


@pytest.mark.parametrize("sql", corpus.PATHS)
def test_a_file_is_no_table(refusals: Refusals, sql: str) -> None:
    with pytest.raises(Refused, match="is not a table"):
        refusals.check_text(sql)


@pytest.mark.parametrize("sql", corpus.NO_PATHS)
def test_what_only_looks_like_a_file_is_let_in(
    connection: duckdb.DuckDBPyConnection, refusals: Refusals, sql: str
) -> None:
    connection.execute('CREATE OR REPLACE TABLE "kept.csv" (i INTEGER)')
    refusals.check_text(sql)


@pytest.mark.parametrize("sql", ["IMPORT DATABASE 'x'", "SELECT 1; import\u3000database 'x'"])
def test_an_import_is_refused_before_it_is_parsed(refusals: Refusals, sql: str) -> None:
    with pytest.raises(Refused, match="IMPORT is not supported"):
        refusals.check_text(sql)


def test_no_macro_of_the_engine_calls_what_is_refused(
    connection: duckdb.DuckDBPyConnection, refusals: Refusals
) -> None:
    sql = (
        "SELECT function_name, macro_definition FROM duckdb_functions()"
        " WHERE internal AND macro_definition IS NOT NULL"
    )
    for name, text in connection.execute(sql).fetchall():
        # These take a table by its name, and are kept for that: see the decision on files there.
        if name in OFFERED - {"histogram", "histogram_values"}:
            refusals.check_text(f"SELECT {text}" if not text.startswith("SELECT") else text)


@pytest.mark.parametrize("name", one_in(4, sorted(corpus.REFUSED_FUNCTIONS)))
def test_each_refused_function_is_refused_in_each_place(refusals: Refusals, name: str) -> None:
    for place in corpus.PLACES:
        with pytest.raises(Refused, match=name):
            refusals.check_text(place.format(call=f"{name}('x')"))


@pytest.mark.parametrize("name", sorted(corpus.REFUSED_PRAGMAS))
def test_each_refused_pragma_is_refused_before_it_is_parsed(refusals: Refusals, name: str) -> None:
    for sql in (f"PRAGMA {name}", f"SELECT 1; /* */ pragma \"{name}\"('x')"):
        with pytest.raises(Refused, match=f"{name}|this PRAGMA is not supported"):
            refusals.check_text(sql)


def test_what_an_earlier_version_let_in_is_dropped_at_start(tmp_path: Path) -> None:
    path = tmp_path / "database.duckdb"
    with duckdb.connect(str(path)) as former:
        former.execute(corpus.STORED)
    connection = open_database(path, tmp_path / "temp", EngineLimits(400_000_000, 1))
    session = Session(connection, Allowance(path, tmp_path / "temp", None))
    left = json.loads(session.answer(corpus.WHAT_IS_STORED, []))["rows"]
    assert left == [["kept_macro"], ["kept_view"]]
    connection.close()


@pytest.mark.parametrize(
    ("sql", "is_refused"),
    [
        ("CREATE TEMP MACRO m(x) AS x + 1", True),
        ("create or replace /* */ temporary function m(x) AS x + 1", True),
        ("CREATE TEMP SEQUENCE s", True),
        ("CREATE TEMP TYPE t AS ENUM ('a')", True),
        ("CREATE MACRO temp.m(x) AS x + 1", True),
        ('CREATE SEQUENCE IF NOT EXISTS "temp".main.s', True),
        ("USE temp", True),
        ('USE "TEMP".main', True),
        ("CREATE MACRO m(x) AS x + 1", False),
        ("CREATE OR REPLACE MACRO macro(temp) AS temp + 1", False),
        ("CREATE TEMP TABLE sequence (i INTEGER)", False),
        ("CREATE TEMP VIEW type AS SELECT 1", False),
        ("CREATE TABLE temp (function INTEGER)", False),
    ],
)
def test_what_a_table_is_made_of_does_not_end_before_it(
    connection: duckdb.DuckDBPyConnection, refusals: Refusals, sql: str, is_refused: bool
) -> None:
    """Such a table or index could neither be written nor checkpointed after the next start."""
    (statement,) = connection.extract_statements(sql)
    if not is_refused:
        refusals.check(statement, sql)
        return
    with pytest.raises(Refused, match="is not supported"):
        refusals.check(statement, sql)
