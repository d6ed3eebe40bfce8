"""Logins that ended: their sessions, and what they own, which becomes the owner's.

Best effort, after the new login works and the old one does not: a database may hold any number of
objects, in any state, and what cannot be handed over now is tried again at the next rotation or
start.
"""

import asyncio
import contextlib
from collections.abc import Sequence

import psycopg
import structlog

from cell.engines.driver import Login
from cell.engines.postgres import connections, roles
from cell.engines.postgres.connections import NotRunningError, PostgresHeldUpError
from cell.engines.postgres.roles import OWNER, Connection
from cell.runtime.engine_files import EnginePath

log = structlog.get_logger("cell.postgres")

# For all of what every login left that ended.
WITHIN_S = 10.0
# By itself, so that one of an owner's transactions does not keep everything else waiting.
LIMITS = ("statement_timeout=8s", "lock_timeout=2s")
# Backends that have checked a password and have no name yet are done with that, mostly.
STARTING_S = 1.0
LOOK_AGAIN_S = 0.05
# One that is told to end does so within milliseconds, mostly.
GONE_WITHIN_S = 10.0
REASON_CHARACTERS = 200
# Ends what logged in with what is no longer valid; the session's user is who logged in.
END_SESSIONS = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
WHERE usename = ANY(%s)
"""
# Those that may have been let in already, which may take as long as their client wants
# (post_auth_delay, or a lock on the database). Before version 18 they are seen by their locks only.
STARTING = """
SELECT pid FROM pg_catalog.pg_stat_activity
WHERE usename IS NULL AND backend_type = 'client backend'
UNION SELECT pid FROM pg_catalog.pg_locks
WHERE pid IS NOT NULL AND pid NOT IN (SELECT pid FROM pg_catalog.pg_stat_activity)
"""
END = "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.unnest(%s::int[]) AS pid"
# Of which there can be many; whatever else there is follows at once.
KINDS = """
    'table', 'view', 'materialized view', 'foreign table', 'sequence', 'function', 'procedure',
    'aggregate', 'type', 'schema', 'large object', 'operator', 'collation', 'conversion',
    'text search configuration', 'text search dictionary'
"""
BATCH = 100
FAILURES = (psycopg.Error, NotRunningError, PostgresHeldUpError, OSError, UnicodeError)


async def end_sessions(connection: Connection, names: Sequence[str]) -> None:
    """Those that logged in as one of them, whatever role they act in now.

    Also those that have proved to be one of them and are not shown yet. HeldUpError where one of
    them goes on: some of what a session may be doing is not interrupted.
    """
    if not names:
        return
    loop = asyncio.get_running_loop()
    until = loop.time() + STARTING_S
    left = await _starting(connection)
    while True:
        await connection.execute(END_SESSIONS, [list(names)])
        if not left or loop.time() > until:
            break
        await asyncio.sleep(LOOK_AGAIN_S)
        left &= await _starting(connection)
    if left:
        await connection.execute(END, [list(left)])
    until = loop.time() + GONE_WITHIN_S
    while (await connection.execute(END_SESSIONS, [list(names)])).rowcount:
        if loop.time() > until:
            raise PostgresHeldUpError("a session of a login that ended does not end")
        await asyncio.sleep(LOOK_AGAIN_S)


async def take_apart(folder: EnginePath, ours: Login, names: Sequence[str], major: int) -> None:
    """Removes logins that ended; raises nothing that has to do with what they left."""
    try:
        async with (
            asyncio.timeout(WITHIN_S),
            connections.administration(folder, ours) as connection,
        ):
            for name in names:
                for database in await roles.databases_owned_in(connection, name):
                    await _hand_over(folder, ours, name, database, major)
                await roles.drop(connection, name)
    except (*FAILURES, TimeoutError) as error:
        _log(error, names)


async def _hand_over(folder: EnginePath, ours: Login, name: str, database: str, major: int) -> None:
    try:
        async with (
            connections.administration(folder, ours, database, major=major, limits=LIMITS) as there,
            connections.unhindered(there, folder, ours),
        ):
            # The rest is handed over also where this takes too long.
            with contextlib.suppress(psycopg.Error):
                await there.execute(_handing_over(name))
            await roles.hand_over(there, name)
    except FAILURES as error:
        _log(error, [name], database)


async def _starting(connection: Connection) -> set[int]:
    found = await connection.execute(STARTING)
    return {pid for (pid,) in await found.fetchall()}


def _log(error: BaseException, names: Sequence[str], database: str | None = None) -> None:
    reason = str(error)[:REASON_CHARACTERS] or type(error).__name__
    log.warning("cell.postgres.not_handed_over", roles=names, database=database, reason=reason)


def _handing_over(name: str) -> bytes:
    """Object by object: each is locked until its transaction ends, and all of them are too many.

    Their names may be of any bytes, and so they stay on the server.
    """
    return f"""
    DO $$
    DECLARE
        one record;
        done int := 0;
    BEGIN
        FOR one IN SELECT found.type, found.identity FROM pg_catalog.pg_shdepend AS d
            CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, 0) AS found
            WHERE d.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass
            AND d.refobjid = '{name}'::pg_catalog.regrole AND d.deptype = 'o'
            AND d.dbid = (SELECT oid FROM pg_catalog.pg_database
                WHERE datname = pg_catalog.current_database())
            AND found.type IN ({KINDS})
            -- A sequence that belongs to a table follows it, and is not changed by itself.
            ORDER BY found.type = 'sequence'
        LOOP
            BEGIN
                EXECUTE pg_catalog.format('ALTER %s %s OWNER TO {OWNER}', one.type, one.identity);
            EXCEPTION WHEN OTHERS THEN NULL;
            END;
            done := done + 1;
            IF done % {BATCH} = 0 THEN
                COMMIT;
            END IF;
        END LOOP;
    END $$
    """.encode()  # noqa: S608 - our own words
