"""Triggers and events of a copy: they rest while a source is followed, which has run its own."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import pymysql

from cell.migrations.mysql.session import identifier

TABLE: Final = "resting"
# One that acts before another one is made before it.
TRIGGERS: Final = """
SELECT TRIGGER_NAME, SQL_MODE, COLLATION_CONNECTION FROM information_schema.TRIGGERS
WHERE TRIGGER_SCHEMA = %s
ORDER BY EVENT_OBJECT_TABLE, ACTION_TIMING, EVENT_MANIPULATION, ACTION_ORDER
"""
EVENTS: Final = """
SELECT EVENT_NAME, SQL_MODE, COLLATION_CONNECTION FROM information_schema.EVENTS
WHERE EVENT_SCHEMA = %s AND STATUS = 'ENABLED'
"""
LISTED: Final = "SELECT kind, name, sql_mode, collation, statement FROM {place} ORDER BY n"
STATEMENT_COLUMN: Final = 2
# An event would run in the past alone: it ends before it starts, or its time is over.
OVER: Final = frozenset({1543, 1544, 1588, 1589})


def lay(cursor: Any, database: str, made: str) -> None:
    """In a copy that nobody else writes to; what is needed to wake them is kept in `made`."""
    place = f"{identifier(made)}.{TABLE}"
    cursor.execute(f"USE {identifier(database)}")
    cursor.execute(
        f"CREATE TABLE {place} (n INT PRIMARY KEY AUTO_INCREMENT, kind VARCHAR(10), "
        "name VARCHAR(64), sql_mode TEXT, collation VARCHAR(64), statement LONGTEXT) ENGINE=InnoDB"
    )
    for kind, asked in (("trigger", TRIGGERS), ("event", EVENTS)):
        cursor.execute(asked, [database])
        for name, mode, collation in cursor.fetchall():
            statement = f"ALTER EVENT {identifier(name)} ENABLE"
            rest = f"ALTER EVENT {identifier(name)} DISABLE"
            if kind == "trigger":
                cursor.execute(f"SHOW CREATE TRIGGER {identifier(name)}")
                statement = cursor.fetchone()[STATEMENT_COLUMN]
                rest = f"DROP TRIGGER {identifier(name)}"
            names = "(kind, name, sql_mode, collation, statement)"
            kept = [kind, name, mode, collation, statement]
            told = f"INSERT INTO {place} {names} VALUES (%s, %s, %s, %s, %s)"  # noqa: S608 - quoted
            cursor.execute(told, kept)
            _as_it_was(cursor, mode, collation)
            with _unless_over(kind):
                cursor.execute(rest)


def wake(cursor: Any, database: str, made: str) -> None:
    """Each once, also where it was broken off."""
    cursor.execute(f"USE {identifier(database)}")
    cursor.execute(LISTED.format(place=f"{identifier(made)}.{TABLE}"))
    listed = cursor.fetchall()
    cursor.execute(TRIGGERS, [database])
    there = {name for name, *_ in cursor.fetchall()}
    for kind, name, mode, collation, statement in listed:
        if kind == "trigger" and name in there:
            continue
        _as_it_was(cursor, mode, collation)
        with _unless_over(kind):
            cursor.execute(statement)


@contextlib.contextmanager
def _unless_over(kind: str) -> Iterator[None]:
    """An event whose only or last moment has passed does not run any more, whatever it is told."""
    try:
        yield
    except pymysql.err.Error as error:
        if kind != "event" or error.args[0] not in OVER:
            raise


def _as_it_was(cursor: Any, mode: str, collation: str) -> None:
    """A statement of the session makes no other of what it makes anew."""
    cursor.execute("SET sql_mode = %s, collation_connection = %s", [mode, collation])
