"""The roles of an instance: the driver's own, the owner's, and one for each later credential."""

from collections.abc import Mapping, Sequence

import psycopg
import structlog
from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow

log = structlog.get_logger("cell.postgres")

SUPERUSER = "menagerie"
OWNER = "app"
DATABASE = "app"
MARK = "login of a credential"
"""The comment on roles made for credentials: owners may have made others with such names."""
CREATEROLE_SINCE = 16
"""Before, who may create roles may grant himself to run programs on the server."""

Connection = AsyncConnection[TupleRow]

FAMILY = f"""
SELECT rolname FROM pg_catalog.pg_roles
WHERE rolname = '{OWNER}' OR rolname ~ '^{OWNER}_[0-9]+$'
AND pg_catalog.shobj_description(oid, 'pg_authid') = '{MARK}'
"""  # noqa: S608 - our own words
# Ends what logged in with what is no longer valid; the session's user is who logged in.
END_SESSIONS = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
WHERE usename = ANY(%s)
"""
OWNING_IN = """
SELECT DISTINCT datname FROM pg_catalog.pg_shdepend JOIN pg_catalog.pg_database d
ON d.oid = dbid OR (dbid = 0 AND datname = 'postgres')
WHERE refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass
AND refobjid = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = %s)
AND deptype = 'o' AND datallowconn
"""


def cluster_statements(major: int, verifier: str) -> list[str]:
    """For a new cluster, in the database `postgres`."""
    rights = "CREATEDB CREATEROLE" if major >= CREATEROLE_SINCE else "CREATEDB"
    return [
        f"ALTER ROLE {SUPERUSER} PASSWORD '{verifier}'",
        f"CREATE ROLE {OWNER} NOLOGIN NOSUPERUSER NOREPLICATION NOBYPASSRLS {rights}",
        f"COMMENT ON ROLE {OWNER} IS 'owner of the instance'",
        f"GRANT pg_monitor, pg_signal_backend TO {OWNER}",
        # The driver's own; others may look in, as tools do that ask for the list of databases.
        "REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC",
        f"CREATE DATABASE {DATABASE} OWNER {OWNER}",
    ]


async def set_password(connection: Connection, verifier: str) -> None:
    """The superuser's."""
    await _run(
        connection,
        "ALTER ROLE {} PASSWORD {}",
        sql.Identifier(SUPERUSER),
        sql.Literal(verifier),
    )


async def disable(connection: Connection) -> None:
    """No credential of where the data comes from works any more."""
    async with connection.transaction():
        for name in await _family(connection):
            await _forbid(connection, name)


async def apply(connection: Connection, verifiers: Mapping[str, str]) -> list[str]:
    """From now on these logins work and no other of ours; answers those that ended."""
    family = await _family(connection)
    for name, verifier in verifiers.items():
        if name != OWNER and name not in family:
            await _make(connection, name)
        statement = "ALTER ROLE {} LOGIN PASSWORD {}"
        await _run(connection, statement, sql.Identifier(name), sql.Literal(verifier))
    ended = [name for name in family if name not in verifiers]
    for name in ended:
        await _forbid(connection, name)
    return ended


async def end_sessions(connection: Connection, names: list[str]) -> None:
    """Those that logged in as one of them, whatever role they act in now."""
    if names:
        await connection.execute(END_SESSIONS, [names])


async def databases_owned_in(connection: Connection, name: str) -> Sequence[str]:
    """Where a login owns something; what the owner has stays the owner's."""
    if name == OWNER:
        return []
    found = await connection.execute(OWNING_IN, [name])
    return [database for (database,) in await found.fetchall()]


async def hand_over(connection: Connection, name: str) -> None:
    """What a login made after it stepped out of its role is the owner's all the same."""
    statement = "REASSIGN OWNED BY {} TO {}"
    await _run(connection, statement, sql.Identifier(name), sql.Identifier(OWNER))


async def drop(connection: Connection, name: str) -> None:
    """Only one that nothing refers to: rights and policies are not ours to take away."""
    if name == OWNER:
        return
    try:
        await _run(connection, "DROP ROLE {}", sql.Identifier(name))
    except psycopg.errors.DependentObjectsStillExist:
        log.info("cell.postgres.login_kept", role=name)


async def make_groups(connection: Connection, names: Sequence[str]) -> None:
    """Those that are not there are made; nobody logs in as one, and the owner may give them away.

    Before version 16 owners cannot make roles themselves.
    """
    async with connection.transaction():
        # Of two who make them at once one waits.
        await connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(0, 0)")
        for name in names:
            there = "SELECT FROM pg_catalog.pg_roles WHERE rolname = %s"
            if await (await connection.execute(there, [name])).fetchone() is None:
                role, owner = sql.Identifier(name), sql.Identifier(OWNER)
                await _run(connection, "CREATE ROLE {} NOLOGIN", role)
                await _run(connection, "GRANT {} TO {} WITH ADMIN OPTION", role, owner)


async def _family(connection: Connection) -> list[str]:
    return [name for (name,) in await (await connection.execute(FAMILY)).fetchall()]


async def _forbid(connection: Connection, name: str) -> None:
    await _run(connection, "ALTER ROLE {} NOLOGIN PASSWORD NULL", sql.Identifier(name))


async def _make(connection: Connection, name: str) -> None:
    """Acts as the owner from its first statement on, so that what it makes is the owner's."""
    role, owner = sql.Identifier(name), sql.Identifier(OWNER)
    found = await connection.execute("SELECT FROM pg_catalog.pg_roles WHERE rolname = %s", [name])
    if await found.fetchone() is None:
        await _run(connection, "CREATE ROLE {} NOSUPERUSER INHERIT", role)
    await _run(connection, "GRANT {} TO {}", owner, role)
    await _run(connection, "ALTER ROLE {} SET role = {}", role, sql.Literal(OWNER))
    await _run(connection, "COMMENT ON ROLE {} IS {}", role, sql.Literal(MARK))


async def _run(connection: Connection, statement: str, *parts: sql.Composable) -> None:
    await connection.execute(sql.SQL(statement).format(*parts))
