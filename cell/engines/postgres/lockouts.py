"""What keeps an owner from logging in to his database, and is undone at each start and rotation.

Who held a credential for a while can leave it behind, and an owner can do it by mistake.
"""

import re

import psycopg
import structlog
from psycopg import sql

from cell.engines.postgres.roles import DATABASE, OWNER, Connection

log = structlog.get_logger("cell.postgres")

REASON_CHARACTERS = 500
TOO_SHORT_MS = 1000.0
"""A session with a shorter limit ends before anybody could lift it."""
# Libraries are never there for owners to name, so a session that should load one does not begin.
FATAL = "local_preload_libraries"
ENDING = ("idle_session_timeout", "transaction_timeout")
_DURATION = re.compile(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*(us|ms|s|min|h|d)?\s*", re.IGNORECASE)
_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "min": 60_000.0, "h": 3_600_000.0, "d": 86_400_000.0}
SETTINGS = """
SELECT setdatabase, r.rolname, pg_catalog.split_part(c, '=', 1),
    pg_catalog.encode(pg_catalog.textsend(
        pg_catalog.substr(c, pg_catalog.strpos(c, '=') + 1, 100)), 'hex')
FROM pg_catalog.pg_db_role_setting
CROSS JOIN LATERAL pg_catalog.unnest(setconfig) AS c
LEFT JOIN pg_catalog.pg_roles r ON r.oid = setrole
WHERE (setrole = 0 OR r.rolname = ANY(%s)) AND pg_catalog.split_part(c, '=', 1) = ANY(%s)
"""
# A database's name may be of any bytes, and so it stays on the server.
RESET_IN_DATABASE = """
DO $$
BEGIN
    EXECUTE pg_catalog.format('ALTER {}DATABASE %I RESET {}',
        (SELECT datname FROM pg_catalog.pg_database WHERE oid = {}));
END $$
"""
STATE = f"""
SELECT datallowconn, datconnlimit = 0,
    pg_catalog.has_database_privilege('{OWNER}', oid, 'CONNECT'),
    datdba = '{OWNER}'::pg_catalog.regrole
FROM pg_catalog.pg_database WHERE datname = '{DATABASE}'
"""  # noqa: S608 - our own words
_NAME = sql.Identifier(DATABASE)


async def lift_settings(connection: Connection, logins: list[str]) -> None:
    """Of these logins, and of databases. Within a transaction in which no other is made."""
    found = await connection.execute(SETTINGS, [logins, [FATAL, *ENDING]])
    for database, role, name, value in await found.fetchall():
        if name in ENDING and not _too_short(bytes.fromhex(value).decode(errors="replace")):
            continue
        setting = sql.Identifier(name)
        subject = sql.SQL("" if role is None else "ROLE {} ").format(sql.Identifier(role or ""))
        statement = sql.SQL("ALTER {}RESET {}").format(subject, setting)
        if database:
            within = subject + sql.SQL("" if role is None else "IN ")
            statement = sql.SQL(RESET_IN_DATABASE).format(within, setting, sql.Literal(database))
        await connection.execute(statement)
        log.warning("cell.postgres.setting_reset", setting=name, database_oid=database, role=role)


async def try_open_database(connection: Connection) -> None:
    try:
        await open_database(connection)
    except psycopg.Error as error:
        # As with a disk that is full; logins to other databases work.
        log.warning("cell.postgres.database_closed", reason=str(error)[:REASON_CHARACTERS])


async def open_database(connection: Connection) -> None:
    """There is one to connect to, empty where the former was dropped or has another name now."""
    row = await (await connection.execute(STATE)).fetchone()
    if row is None:
        # From the template that nobody connects to: who does to the other keeps it from being used.
        await _run(connection, "CREATE DATABASE {} OWNER {} TEMPLATE template0")
        log.warning("cell.postgres.database_made")
        return
    allowed, full, may_connect, is_owners = row
    if not is_owners:
        # Who held a credential may have dropped it, and had a role of his make another.
        await _run(connection, "ALTER DATABASE {} OWNER TO {}")
        log.warning("cell.postgres.database_given_back")
    if not allowed:
        await _run(connection, "ALTER DATABASE {} ALLOW_CONNECTIONS true")
    if full:
        await _run(connection, "ALTER DATABASE {} CONNECTION LIMIT -1")
    if not may_connect:
        await _run(connection, "GRANT CONNECT ON DATABASE {} TO {}")


async def _run(connection: Connection, statement: str) -> None:
    """With the database, and the owner where he is named."""
    await connection.execute(sql.SQL(statement).format(_NAME, sql.Identifier(OWNER)))


def _too_short(value: str) -> bool:
    """0 is no limit; whoever writes one that is not understood here has it reset."""
    found = _DURATION.fullmatch(value)
    try:
        limit_ms = float(found[1]) * _MS[(found[2] or "ms").lower()] if found else 1.0
    except ValueError:
        limit_ms = 1.0
    return 0 < limit_ms < TOO_SHORT_MS
