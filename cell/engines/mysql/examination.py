"""Whether all data of a server can be read; views, triggers and routines are none of it."""

from typing import Any

from cell.engines.driver import Contents, EngineError, Login
from cell.engines.mysql.client import FAILURES, session
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


def examine(socket: EnginePath, ours: Login) -> Contents:
    """Has the server check each table, and counts its rows. Blocks for long."""
    counted = []
    try:
        with session(socket, ours.username, ours.password, ANSWER_TIMEOUT_S) as cursor:
            cursor.execute(TABLES)
            for schema, name in cursor.fetchall():
                budget.go_on()
                place = f"{_quoted(schema)}.{_quoted(name)}"
                cursor.execute(f"CHECK TABLE {place}")
                _look(cursor.fetchall(), f"{schema}.{name}")
                cursor.execute(f"SELECT COUNT(*) FROM {place}")  # noqa: S608 - quoted
                counted.append((schema, name, cursor.fetchone()[0]))
    except FAILURES as error:
        raise EngineError(f"the data cannot be read: {error}") from error
    return Contents.of(counted)


def _look(found: tuple[tuple[Any, ...], ...], table: str) -> None:
    """At the rows of an answer; notes and warnings are of tables that can be read."""
    for _, _, kind, text in found:
        if kind.lower() == "error" or (kind.lower() == "status" and text not in WELL):
            raise EngineError(f"the table {table} cannot be read: {text}")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
