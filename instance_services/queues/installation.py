"""Puts PGMQ and what the service needs beside it into a database, once."""

from collections.abc import Awaitable, Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import psycopg
from psycopg.rows import TupleRow

from specserver import Conflict

VERSION: Final = 2
"""Of setup.sql: a database with an older one gets it again."""
ROLES: Final = ("anon", "authenticated", "service_role")
DEFAULT_ROLES: Final = ("service_role",)
_LOCK: Final = "menagerie: installing queues"
_NEEDED: Final = """
SELECT pg_catalog.to_regtype('pgmq.message_record') IS NOT NULL
AND pg_catalog.to_regprocedure('pgmq.send(text,jsonb,integer)') IS NOT NULL
AND pg_catalog.to_regprocedure('pgmq.create_unlogged(text)') IS NOT NULL
AND pg_catalog.to_regprocedure('pgmq.acquire_queue_lock(text)') IS NOT NULL
AND EXISTS (
    SELECT FROM pg_catalog.pg_proc
    WHERE oid = pg_catalog.to_regprocedure('pgmq.metrics(text)')
    AND prosrc LIKE '%queue_visible_length%'
)
"""

Connection = psycopg.AsyncConnection[TupleRow]
MakeRoles = Callable[[], Awaitable[None]]


async def ensure(connection: Connection, make_roles: MakeRoles) -> None:
    """Returns when queues can be used; of two who come first, one installs and one waits.

    `make_roles` makes the roles of the data API, which an owner may not be allowed to. Raises
    Conflict where the owner's own schema `pgmq` is something else.
    """
    if await _installed(connection) == VERSION:
        return
    await make_roles()
    async with connection.transaction():
        await connection.execute(
            "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))", [_LOCK]
        )
        if await _installed(connection) == VERSION:
            return
        await _install_pgmq(connection)
        await connection.execute(_setup())
        await connection.execute("DELETE FROM menagerie_queues.installed")
        await connection.execute(
            "INSERT INTO menagerie_queues.installed (version, pgmq_version) VALUES (%s, %s)",
            [VERSION, pgmq_version()],
        )


def pgmq_version() -> str:
    """Of the SQL that is installed."""
    return _bundled("VERSION").decode().strip()


async def _installed(connection: Connection) -> int | None:
    there = "SELECT pg_catalog.to_regclass('menagerie_queues.installed') IS NOT NULL"
    if not await _is(connection, there):
        return None
    found = await connection.execute(
        "SELECT version::integer FROM menagerie_queues.installed LIMIT 1"
    )
    row = await found.fetchone()
    return None if row is None else row[0]


async def _install_pgmq(connection: Connection) -> None:
    """One the owner installed is used as it is: its SQL cannot be run over itself."""
    if not await _is(connection, "SELECT pg_catalog.to_regnamespace('pgmq') IS NOT NULL"):
        await connection.execute(_bundled("pgmq.sql"))
    elif not await _is(connection, _NEEDED):
        raise Conflict(
            "the database has a schema pgmq that is not PGMQ 1.5 or later; rename or drop it"
        )


async def _is(connection: Connection, question: str) -> bool:
    row = await (await connection.execute(question.encode())).fetchone()
    return row is not None and bool(row[0])


@cache
def _setup() -> bytes:
    return Path(__file__).with_name("setup.sql").read_bytes()


@cache
def _bundled(name: str) -> bytes:
    """A file of the package pgmq, which is not imported: that takes a second, and SQLAlchemy."""
    found = find_spec("pgmq")
    assert found is not None
    assert found.submodule_search_locations
    return (Path(found.submodule_search_locations[0]) / "sql" / name).read_bytes()
