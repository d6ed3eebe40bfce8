"""Holds that nothing a tenant names like the engine's own changes what the service does."""

import ast
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import instance_services.duckdb
from contract_tests.attacks.statements import called
from contract_tests.by_day import one_in
from contract_tests.duckdb.process import Service
from instance_services.duckdb import catalog
from instance_services.duckdb.allowance import Allowance
from instance_services.duckdb.database import EngineLimits, open_database
from instance_services.duckdb.session import Failed, Session

ROOM = Path(instance_services.duckdb.__file__).parent
SQL = re.compile(r"\b(?:SELECT|CAST|CASE|DROP|system\.main)\b")
# What stands before a parenthesis and is no function.
SYNTAX = {"CAST", "FROM", "AS", "IN", "MAP", "AND", "SELECT"}
CALL = re.compile(r'([\w.]+|"[^"]*")\(')
OPERATOR = re.compile(r"\|\||~~|\bLIKE\b|\bIN\b| [-+*/%] ")
VALUES = """
CREATE TABLE kept AS SELECT
    TIMESTAMPTZ '2026-01-31 09:30:00+02' AS zoned, TIMESTAMP '2026-01-31 09:30:00.5' AS stamp,
    TIMETZ '09:30:00+02' AS clock, DATE 'infinity' AS day, '\\xAA'::BLOB AS blob, 1.50 AS price,
    [TIMESTAMP '2026-01-31 09:30:00'] AS several, {'a': '{}'::JSON, 'b': 2.50} AS pair,
    TIMESTAMP_NS '2026-01-31 09:30:00.123456789' AS exact
"""


def shadow(connection: Any) -> None:
    """A macro of the name of each function and operator; each fails where it is called."""
    sql = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE internal"
    names = [name for (name,) in connection.execute(sql).fetchall()]
    for name in names:
        connection.execute(
            f"CREATE MACRO {catalog.quoted(name)}(a := 1, b := 1, c := 1) AS"
            " system.main.error('boom')"
        )
    connection.execute("CREATE SCHEMA system; CREATE TYPE json AS INTEGER")
    for name in ("duckdb_views", "duckdb_tables"):
        connection.execute(f"CREATE VIEW {name} AS SELECT 1")


def opened(path: Path) -> tuple[Any, Session]:
    spill = path.with_name("temp")
    connection = open_database(path, spill, EngineLimits(400_000_000, 1))
    return connection, Session(connection, Allowance(path, spill, None))


@pytest.fixture
def shadowed(tmp_path: Path) -> Iterator[tuple[Session, Any]]:
    """A session whose tenant has taken every name, and what its table held before that."""
    path = tmp_path / "database.duckdb"
    connection, session = opened(path)
    session.answer(VALUES, [])
    before = json.loads(session.answer("FROM kept", []))["rows"]
    shadow(connection)
    connection.execute("CREATE VIEW hostile AS FROM system.main.query('SELECT 1')")
    connection.close()
    connection, session = opened(path)
    yield session, before
    connection.close()


@pytest.mark.nightly
def test_it_starts_decides_and_answers_as_before(shadowed: tuple[Session, Any]) -> None:
    session, before = shadowed
    for _ in range(20):
        # The later ones are prepared.
        assert json.loads(session.answer("FROM kept", []))["rows"] == before
    with pytest.raises(Failed, match="query is not supported"):
        session.answer("FROM system.main.query('SELECT 1')", [])
    left = "SELECT view_name FROM system.main.duckdb_views() WHERE NOT internal"
    assert ["hostile"] not in json.loads(session.answer(left, []))["rows"]


def test_a_name_is_no_statement(tmp_path: Path) -> None:
    path = tmp_path / "database.duckdb"
    name = 'v"; CREATE TABLE pwned (i INTEGER); --'
    with duckdb.connect(str(path)) as former:
        former.execute(f"CREATE VIEW {catalog.quoted(name)} AS FROM query('SELECT 1')")
        told = "main.nothing; CREATE TABLE pwned (i INTEGER); --"
        former.execute(f"CREATE MACRO format(a, b, c) AS '{told}'")
    connection, session = opened(path)
    found = "SELECT table_name FROM system.main.duckdb_tables()"
    assert json.loads(session.answer(found, []))["rows"] == []
    connection.close()


@pytest.mark.parametrize("broken", ["stored", "drop"])
def test_where_it_cannot_be_dropped_only_that_can_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "database.duckdb"
    with duckdb.connect(str(path)) as former:
        former.execute("CREATE VIEW v AS FROM query('SELECT 1')")

    def fail(*_: Any) -> None:
        raise duckdb.BinderException("boom")

    monkeypatch.setattr(catalog, broken, fail)
    connection, session = opened(path)
    assert json.loads(session.answer("SELECT 1", []))["rows"] == [[1]]
    with pytest.raises(Failed, match=r"no other statement is run"):
        session.answer("FROM v", [])
    session.answer("DROP VIEW v", [])
    monkeypatch.undo()
    assert json.loads(session.answer("SELECT 2", []))["rows"] == [[2]]
    connection.close()


# Slow for what it adds by day.
@pytest.mark.nightly
@pytest.mark.parametrize("sql", one_in(5, called("duckdb", "shadowing")))
def test_an_instance_starts_again_after_each(own_service: Service, sql: str) -> None:
    own_service.query(sql)
    assert own_service.end(signal.SIGTERM) == 0
    own_service.start()
    assert own_service.rows("SELECT 1") == [[1]]
    assert "is not supported" in own_service.error("FROM system.main.query('SELECT 1')")


def texts() -> Iterator[tuple[str, str]]:
    """Each SQL text of the service, as it stands in the code."""
    for path in sorted(ROOM.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    str(part.value) if isinstance(part, ast.Constant) else "{}"
                    for part in node.values
                ]
                yield path.name, "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path.name, node.value


def test_every_statement_of_the_service_names_the_engines_own() -> None:
    told = {"refusals.py", "errors.py", "allowance.py", "session.py", "engine.py"}
    found = [(name, text) for name, text in texts() if SQL.search(text) and " the " not in text]
    assert {"catalog.py", "reference.py", "values.py"} <= {name for name, _ in found}
    for name, text in found:
        if name in told and not text.startswith("SELECT"):
            continue
        for function in CALL.findall(text):
            assert function.startswith("system.main.") or function in SYNTAX, (name, text)
        assert not OPERATOR.search(text), (name, text)
        for source in re.findall(r"FROM (\S+)", text):
            assert source.startswith(("system.main.", "(")), (name, text)
