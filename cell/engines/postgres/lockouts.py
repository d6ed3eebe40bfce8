"""What keeps an owner from logging in to his database, and is undone at each start and rotation.

Who held a credential for a while can leave it behind, and an owner can do it by mistake.
"""

import re
import secrets
from collections.abc import Sequence

import psycopg
import structlog
from psycopg import sql

from cell.engines.driver import Login
from cell.engines.postgres import connections, roles
from cell.engines.postgres.roles import DATABASE, OWNER, Connection
from cell.runtime.engine_files import EnginePath

log = structlog.get_logger("cell.postgres")

TOO_SHORT_MS = 1000.0
"""A session with a shorter limit ends before anybody could lift it."""
# Libraries are never there for owners to name, so a session that should load one does not begin.
FATAL = "local_preload_libraries"
# A session begins in none that its database's cannot be converted to.
ENCODING = "client_encoding"
ENDING = ("idle_session_timeout", "transaction_timeout")
_DURATION = re.compile(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*(us|ms|s|min|h|d)?\s*", re.IGNORECASE)
_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "min": 60_000.0, "h": 3_600_000.0, "d": 86_400_000.0}
REASON_CHARACTERS = 500


def _convertible(one: str, other: str) -> str:
    """Whether there is a way from one encoding to another; SQL_ASCII (0) is taken as it is."""
    return f"""({one} = {other} OR 0 IN ({one}, {other}) OR EXISTS (
    SELECT FROM pg_catalog.pg_conversion WHERE condefault
    AND connamespace = 'pg_catalog'::pg_catalog.regnamespace
    AND conforencoding = {one} AND contoencoding = {other}))"""


_UTF8 = "pg_catalog.pg_char_to_encoding('UTF8')"
# Of a database `d`.
USABLE = _convertible("d.encoding", _UTF8)
# What is set for a role in all databases counts in `app`, be it one that is yet to be made.
_ENCODING = f"""coalesce((SELECT encoding FROM pg_catalog.pg_database d
    WHERE d.oid = setdatabase OR setdatabase = 0 AND datname = '{DATABASE}' AND {USABLE}),
    {_UTF8})"""  # noqa: S608 - our own words
SETTINGS = f"""
SELECT setdatabase, r.rolname, pg_catalog.split_part(c, '=', 1),
    pg_catalog.encode(pg_catalog.textsend(
        pg_catalog.substr(c, pg_catalog.strpos(c, '=') + 1, 100)), 'hex'),
    pg_catalog.split_part(c, '=', 1) = '{ENCODING}' AND {
    _convertible(
        "pg_catalog.pg_char_to_encoding(pg_catalog.substr(c, pg_catalog.strpos(c, '=') + 1, 63))",
        _ENCODING,
    )
}
FROM pg_catalog.pg_db_role_setting
CROSS JOIN LATERAL pg_catalog.unnest(setconfig) AS c
LEFT JOIN pg_catalog.pg_roles r ON r.oid = setrole
WHERE (setrole = 0 OR r.rolname = ANY(%s)) AND pg_catalog.split_part(c, '=', 1) = ANY(%s)
"""  # noqa: S608 - our own words
# A database's name may be of any bytes, and so it stays on the server.
RESET_IN_DATABASE = """
DO $$
BEGIN
    EXECUTE pg_catalog.format('ALTER {}DATABASE %I RESET {}',
        (SELECT datname FROM pg_catalog.pg_database WHERE oid = {}));
END $$
"""
STATE = f"""
SELECT datconnlimit <> -2, datallowconn, datconnlimit = 0,
    pg_catalog.has_database_privilege('{OWNER}', oid, 'CONNECT'),
    datdba = '{OWNER}'::pg_catalog.regrole, {USABLE}
FROM pg_catalog.pg_database d WHERE datname = '{DATABASE}'
"""  # noqa: S608 - our own words
END_SESSIONS = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE datname = %s
"""
_NAME = sql.Identifier(DATABASE)


async def lift_settings(connection: Connection, logins: list[str]) -> None:
    """Of these logins, and of databases. Within a transaction in which no other is made."""
    found = await connection.execute(SETTINGS.encode(), [logins, [FATAL, ENCODING, *ENDING]])
    for database, role, name, value, converts in await found.fetchall():
        if name in ENDING and not _too_short(bytes.fromhex(value).decode(errors="replace")):
            continue
        if converts:
            continue
        setting = sql.Identifier(name)
        subject = sql.SQL("" if role is None else "ROLE {} ").format(sql.Identifier(role or ""))
        statement = sql.SQL("ALTER {}RESET {}").format(subject, setting)
        if database:
            within = subject + sql.SQL("" if role is None else "IN ")
            statement = sql.SQL(RESET_IN_DATABASE).format(within, setting, sql.Literal(database))
        await connection.execute(statement)
        log.warning("cell.postgres.setting_reset", setting=name, database_oid=database, role=role)


async def let_clients_in(
    connection: Connection, folder: EnginePath, logins: Sequence[Login]
) -> None:
    """There is a database, and these logins get in there as clients do: without settings.

    No rotation fails for this: whoever is to go would keep his credential so.
    """
    try:
        await _open_database(connection)
        for login in logins:
            if await connections.lets_clients_in(folder, login):
                continue
            # A server that takes it nowhere says nothing of settings; nor does one time.
            await connections.try_login(folder, login)
            if not await connections.lets_clients_in(folder, login):
                await _reset(connection, folder, login)
    except psycopg.Error as error:
        if connection.closed:
            raise
        # As with a disk that is full; logins to other databases work.
        log.warning("cell.postgres.database_closed", reason=str(error)[:REASON_CHARACTERS])


async def _reset(connection: Connection, folder: EnginePath, login: Login) -> None:
    """Whatever it is that the server or a client's library does not take."""
    async with connection.transaction():
        await connection.execute(roles.ALONE)
        await _run(connection, "ALTER DATABASE {} RESET ALL")
        await roles.reset(connection, login.username)
    cured = await connections.lets_clients_in(folder, login)
    log.warning("cell.postgres.settings_reset", role=login.username, lets_clients_in=cured)


async def _open_database(connection: Connection) -> None:
    """There is one to connect to, empty where the former was dropped or has another name now."""
    row = await (await connection.execute(STATE)).fetchone()
    if row is not None and not row[0]:
        # Its removal was broken off: the server lets nobody in, and it can only be removed.
        await _run(connection, "DROP DATABASE {} WITH (FORCE)")
        row = None
    if row is not None and not row[-1]:
        await _set_aside(connection)
        row = None
    if row is None:
        # From the template that nobody connects to: who does to the other keeps it from being used.
        await _run(connection, "CREATE DATABASE {} OWNER {} TEMPLATE template0")
        log.warning("cell.postgres.database_made")
        return
    _, allowed, full, may_connect, is_owners, _ = row
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


async def _set_aside(connection: Connection) -> None:
    """One in an encoding that no client can read; whoever can finds it under its new name."""
    aside = f"{DATABASE}_{secrets.token_hex(4)}"
    await _run(connection, "ALTER DATABASE {} ALLOW_CONNECTIONS false")
    try:
        await connection.execute(END_SESSIONS, [DATABASE])
        # The server waits some seconds for them.
        await _run(connection, f"ALTER DATABASE {{}} RENAME TO {aside}")
    except psycopg.Error:
        await _run(connection, "ALTER DATABASE {} ALLOW_CONNECTIONS true")
        raise
    await connection.execute(f"ALTER DATABASE {aside} ALLOW_CONNECTIONS true".encode())
    log.warning("cell.postgres.database_set_aside", to=aside)


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
