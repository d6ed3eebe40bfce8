"""Whether all data of a server can be read; views, triggers and routines are none of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cell.engines.contents import Contents
from cell.engines.driver import EngineError, Login
from cell.engines.mysql.client import FAILURES, MySQLRefusedError, session
from cell.runtime import budget
from cell.runtime.engine_files import EnginePath

# One table may be as large as all the data.
ANSWER_TIMEOUT_S = 6 * 3600.0
WELL = ("OK", "Table is already up to date")
TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
AND TABLE_SCHEMA NOT IN ('information_schema', 'performance_schema', 'sys')
"""
# Of which owners see nothing.
SERVERS = "mysql"
# Schemas that are the server's own.
SYSTEMS = "('mysql', 'information_schema', 'performance_schema', 'sys')"
OWNED = f"""
SELECT IF(TABLE_TYPE LIKE '%VIEW' OR TABLE_TYPE = 'SEQUENCE', 'other', 'table'), TABLE_SCHEMA,
    TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN {SYSTEMS}
UNION ALL SELECT 'routine', ROUTINE_SCHEMA, ROUTINE_NAME FROM information_schema.ROUTINES
    WHERE ROUTINE_SCHEMA NOT IN {SYSTEMS}
UNION ALL SELECT 'event', EVENT_SCHEMA, EVENT_NAME FROM information_schema.EVENTS
    WHERE EVENT_SCHEMA NOT IN {SYSTEMS}
"""  # noqa: S608 - our own words


PASSING = f"""
SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
WHERE ENGINE = 'MEMORY' AND TABLE_ROWS > 0 AND TABLE_SCHEMA NOT IN {SYSTEMS} LIMIT 1
"""  # noqa: S608 - our own words


@dataclass(frozen=True)
class Supported:
    """What a server knows; names of engines in small letters."""

    version: str
    engines: frozenset[str]
    collations: frozenset[str]


def examine(socket: EnginePath, ours: Login, owners: Login) -> Contents:
    """Has the server check each table, and counts its rows. Blocks for long."""
    counted = []
    try:
        with _both(socket, ours, owners) as (servers, cursor):
            servers.execute(TABLES)
            for schema, name in servers.fetchall():
                budget.go_on()
                asked = servers if schema == SERVERS else cursor
                place = f"{_quoted(schema)}.{_quoted(name)}"
                asked.execute(f"CHECK TABLE {place}")
                _look(asked.fetchall(), f"{schema}.{name}")
                asked.execute(f"SELECT COUNT(*) FROM {place}")  # noqa: S608 - quoted
                counted.append((schema, name, asked.fetchone()[0]))
    except FAILURES as error:
        raise EngineError(f"the data cannot be read: {error}") from error
    return Contents.of(counted)


def owned(socket: EnginePath, ours: Login, owners: Login) -> Contents:
    """What there is that is not the server's: the rows of tables, and all else by its name."""
    counted: list[tuple[Any, ...]] = []
    rows = 0
    try:
        with _both(socket, ours, owners) as (servers, cursor):
            servers.execute(OWNED)
            for kind, schema, name in servers.fetchall():
                budget.go_on()
                count = 0
                if kind == "table":
                    place = f"{_quoted(schema)}.{_quoted(name)}"
                    cursor.execute(f"SELECT COUNT(*) FROM {place}")  # noqa: S608 - quoted
                    count = cursor.fetchone()[0]
                counted.append((kind, schema, name, count))
                rows += count
    except FAILURES as error:
        raise EngineError(f"the data cannot be counted: {error}") from error
    return Contents.of(counted, rows=rows)


@contextmanager
def _both(socket: EnginePath, ours: Login, owners: Login) -> Iterator[tuple[Any, Any]]:
    """A session of the administrator, which lists; and one of the owner, which reads.

    Between the two, a view may have come into the place of a table. Whatever code of an owner's is
    run by reading it is run with the rights of that owner.
    """
    with (
        session(socket, ours.username, ours.password, ANSWER_TIMEOUT_S) as servers,
        session(socket, owners.username, owners.password, ANSWER_TIMEOUT_S) as cursor,
    ):
        yield servers, cursor


def supported(socket: EnginePath, ours: Login) -> Supported:
    try:
        with session(socket, ours.username, ours.password) as cursor:
            cursor.execute("SELECT VERSION()")
            version = cursor.fetchone()[0]
            cursor.execute(
                "SELECT LOWER(ENGINE) FROM information_schema.ENGINES "
                "WHERE SUPPORT IN ('YES', 'DEFAULT')"
            )
            engines = frozenset(name for (name,) in cursor.fetchall())
            cursor.execute(
                "SELECT FULL_COLLATION_NAME "
                "FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
            )
            collations = frozenset(name for (name,) in cursor.fetchall())
    except FAILURES as error:
        raise EngineError(f"the engine cannot be asked what it supports: {error}") from error
    return Supported(version, engines, collations)


def answers(
    socket: EnginePath, login: Login, questions: Mapping[str, str]
) -> dict[str, tuple[Any, ...] | None]:
    """By the same names, the first row of each; None where it is refused. Blocks for long.

    With the rights of `login` alone: what is asked may be of another's making.
    """
    found: dict[str, tuple[Any, ...] | None] = {}
    given = (socket, login.username, login.password, ANSWER_TIMEOUT_S)
    try:
        for name, question in questions.items():
            budget.go_on()
            try:
                with session(*given) as cursor:
                    cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
                    cursor.execute(question)
                    found[name] = cursor.fetchone()
            except MySQLRefusedError:
                found[name] = None
    except FAILURES as error:
        raise EngineError(f"the data cannot be read: {error}") from error
    return found


def refuse_passing(socket: EnginePath, ours: Login) -> None:
    """EngineError where a table has rows that no copy has."""
    try:
        with session(socket, ours.username, ours.password, ANSWER_TIMEOUT_S) as cursor:
            cursor.execute(PASSING)
            found = cursor.fetchone()
    except FAILURES as error:
        raise EngineError(f"the tables cannot be listed: {error}") from error
    if found is not None:
        raise EngineError(
            f"the table {found[0]}.{found[1]} has the engine MEMORY, whose rows are in no copy:"
            " give it another engine in the dump, or leave out its rows"
        )


def _look(found: tuple[tuple[Any, ...], ...], table: str) -> None:
    """At the rows of an answer; notes and warnings are of tables that can be read."""
    for _, _, kind, text in found:
        if kind.lower() == "error" or (kind.lower() == "status" and text not in WELL):
            raise EngineError(f"the table {table} cannot be read: {text}")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
