"""What only a superuser can have made and the cell did not: it is dropped, or becomes the owner's.

Nobody should become one. Whoever did by a fault of the server or of an extension must not stay it:
each start, rotation, restore and upgrade looks in every database.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

import psycopg
import structlog
from psycopg import sql

from cell.engines.driver import EngineError, Login
from cell.engines.postgres import builtin_functions, connections, extensions, roles, searches
from cell.engines.postgres.builtin_functions import Functions
from cell.engines.postgres.connections import PostgresHeldUpError
from cell.engines.postgres.ended_logins import FAILURES, LIMITS
from cell.engines.postgres.extensions import Called
from cell.engines.postgres.installation import Installation
from cell.engines.postgres.roles import OWNER, Connection
from cell.engines.postgres.scram import Keys
from cell.runtime.engine_files import EnginePath

log = structlog.get_logger("cell.postgres")

WITHIN_S = 20.0
AT_ONCE = 2
REASON = "only a superuser can have made it"
REASON_CHARACTERS = 200
# Nobody's statements begin one before it is dropped; rows can be changed without that.
SILENCE = f"""
UPDATE pg_event_trigger o SET evtenabled = 'D' WHERE oid >= {searches.FIRST} AND evtenabled <> 'D'
AND NOT EXISTS ({searches.MEMBERS} AND d.classid = 'pg_event_trigger'::regclass AND d.objid = o.oid)
"""  # noqa: S608 - our own words
DEFAULTS = """
WITH gone AS (DELETE FROM pg_default_acl WHERE defaclrole = 10 RETURNING oid)
DELETE FROM pg_depend WHERE classid = 'pg_default_acl'::regclass AND objid IN (SELECT oid FROM gone)
"""
GRANTS = f"DELETE FROM pg_shdepend WHERE ctid IN ({searches.GRANTS})"  # noqa: S608 - our own words
# Only superusers make them, and what lies in them is not where the instance's data is.
DISOWN = f"""
UPDATE pg_tablespace SET spcacl = NULL, spcowner = 10
WHERE oid >= {searches.FIRST} AND (spcacl IS NOT NULL OR spcowner <> 10);
DELETE FROM pg_shdepend WHERE classid = 'pg_tablespace'::regclass AND deptype IN ('a', 'o')
"""  # noqa: S608 - our own words
TABLESPACES = f"""
SELECT oid, encode(textsend(spcname::text), 'hex') FROM pg_tablespace WHERE oid >= {searches.FIRST}
"""  # noqa: S608 - our own words
RENAME = """
DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I RENAME TO {1}',
        (SELECT datname FROM pg_database WHERE oid = {0}));
END $$
"""
# Its name may be of any bytes, and so it stays on the server. What cannot be dropped is emptied:
# something depends on it.
CHANGE = """
DO $do$
DECLARE one record;
BEGIN
    SELECT CASE i.type WHEN 'foreign-data wrapper' THEN 'foreign data wrapper'
        WHEN 'statistics object' THEN 'statistics' WHEN 'composite type' THEN 'type'
        ELSE i.type END AS type, i.identity INTO one
    FROM pg_identify_object({0}, {1}, 0) AS i;
    IF one.type = 'subscription' THEN
        EXECUTE format('ALTER SUBSCRIPTION %s DISABLE', one.identity);
        EXECUTE format('ALTER SUBSCRIPTION %s SET (slot_name = NONE)', one.identity);
    END IF;
    IF '{2}' = 'OWNER' THEN
        EXECUTE format('ALTER %s %s OWNER TO {3}', one.type, one.identity);
    ELSE
        EXECUTE format('%s %s %s {4}', 'DROP', one.type, one.identity);
    END IF;
EXCEPTION WHEN dependent_objects_still_exist THEN
    IF {0} = 'pg_proc'::regclass THEN
        UPDATE pg_proc SET prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql'),
            prosrc = 'BEGIN RETURN NULL; END', probin = NULL, prosecdef = false,
            proowner = 10 WHERE oid = {1};
    ELSIF {0} = 'pg_extension'::regclass THEN
        UPDATE pg_proc p SET proacl = ARRAY[makeaclitem(10, 10, 'EXECUTE', false)] FROM pg_depend d
        WHERE d.deptype = 'e' AND d.refclassid = {0} AND d.refobjid = {1}
            AND d.classid = 'pg_proc'::regclass AND d.objid = p.oid;
    ELSE
        RAISE;
    END IF;
END $do$
"""
DATABASES = """
SELECT oid, encode(textsend(datname::text), 'hex'), datallowconn FROM pg_database
WHERE datconnlimit <> -2 ORDER BY oid
"""
# Meanwhile nobody but a superuser gets in: 0 is the limit of all others.
OPEN = """
UPDATE pg_database d SET datallowconn = true, datconnlimit = 0
FROM (SELECT oid, datconnlimit AS former FROM pg_database) b
WHERE d.oid = b.oid AND d.oid = ANY(%s) RETURNING d.oid, b.former
"""
CLOSE = """
UPDATE pg_database d SET datallowconn = false, datconnlimit = b.former
FROM unnest(%s::oid[], %s::integer[]) AS b (oid, former) WHERE d.oid = b.oid
"""
# Of the databases that are ours; `public` there is its owner's, who is the superuser.
DATABASE_RIGHTS = f"""
DO $$
DECLARE one record;
BEGIN
    FOR one IN SELECT d.datname, a.grantee::regrole AS grantee FROM pg_database d,
        aclexplode(d.datacl) a WHERE d.datname IN {searches.OURS} AND a.grantee NOT IN (0, 10)
    LOOP
        EXECUTE format('REVOKE ALL ON DATABASE %I FROM %s', one.datname, one.grantee);
    END LOOP;
    FOR one IN SELECT DISTINCT d.datname FROM pg_database d, aclexplode(d.datacl) a
        WHERE d.datname IN {searches.OURS} AND a.grantee = 0 AND a.privilege_type <> 'CONNECT'
    LOOP
        EXECUTE format('REVOKE CREATE, TEMPORARY ON DATABASE %I FROM PUBLIC', one.datname);
    END LOOP;
    FOR one IN SELECT d.datname FROM pg_database d WHERE d.datname IN {searches.OURS}
        AND NOT has_database_privilege('pg_monitor', d.oid, 'CONNECT')
    LOOP
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO PUBLIC', one.datname);
    END LOOP;
    FOR one IN SELECT datname FROM pg_database WHERE datdba = 10 AND oid >= {searches.FIRST} LOOP
        EXECUTE format('ALTER DATABASE %I OWNER TO {OWNER}', one.datname);
    END LOOP;
END $$
"""  # noqa: S608 - our own words


# Left open where a server died while it was searched; no upgrade takes a cluster with it open.
CLOSE_TEMPLATE = """
UPDATE pg_database SET datallowconn = false, datconnlimit = -1
WHERE datname = 'template0' AND (datallowconn OR datconnlimit <> -1)
"""


@dataclass(frozen=True)
class ServerAccess:
    """To the databases of a server."""

    folder: EnginePath
    ours: Login
    installation: Installation
    keys: Keys | None


async def clear(folder: EnginePath, ours: Login, installation: Installation) -> None:
    """In all databases; raises nothing that has to do with what is in them but ChangedError.

    HeldUpError where sessions leave it no room to begin: at a start there are none.
    """
    try:
        async with (
            asyncio.timeout(WITHIN_S),
            connections.administration(folder, ours) as connection,
        ):
            await connection.execute(CLOSE_TEMPLATE.encode())
            await connection.execute(DATABASE_RIGHTS.encode())
            await _empty_tablespaces(connection)
            found = await (await connection.execute(DATABASES)).fetchall()
            names = [await _text(connection, oid, name) for oid, name, _ in found]
            keys = await connections.keys(connection, ours)
            access = ServerAccess(folder, ours, installation, keys)
            async with _opened(connection, [oid for oid, _, allowed in found if not allowed]):
                await _each(access, [name for name in names if name])
    except (*FAILURES, TimeoutError) as error:
        if isinstance(error, psycopg.Error) and connections.is_exhausted(error):
            raise PostgresHeldUpError(connections.reason(error)) from error
        _log(error, None)


async def _text(connection: Connection, oid: int, encoded: str) -> str | None:
    """A database's name; one of other bytes than text is changed, as no client can ask for it."""
    name = bytes.fromhex(encoded)
    if roles.is_text(name):
        return name.decode()
    # One that nobody has taken before, or can foresee.
    renamed = f"database_{oid}_{secrets.token_hex(4)}"
    try:
        await connection.execute(RENAME.format(oid, renamed).encode())
    except FAILURES as error:
        _log(error, str(oid))
        return None
    log.warning("cell.postgres.database_renamed", to=renamed)
    return renamed


async def _empty_tablespaces(connection: Connection) -> None:
    """What lies in one is the owner's, and stays; nobody puts more there."""
    await connection.execute(DISOWN.encode())
    for oid, encoded in await (await connection.execute(TABLESPACES.encode())).fetchall():
        name = bytes.fromhex(encoded)
        if not roles.is_text(name):
            continue
        try:
            statement = sql.SQL("DROP TABLESPACE {}").format(sql.Identifier(name.decode()))
            await connection.execute(statement)
        except FAILURES as error:
            _log(error, None, f"tablespace {oid}")


@contextlib.asynccontextmanager
async def _opened(connection: Connection, closed: list[int]) -> AsyncIterator[None]:
    """Databases that let nobody in, which others are copies of."""
    rows = await (await connection.execute(OPEN.encode(), [closed])).fetchall()
    try:
        yield
    finally:
        oids, limits = [oid for oid, _ in rows], [limit for _, limit in rows]
        await connection.execute(CLOSE.encode(), [oids, limits])


async def _each(access: ServerAccess, names: list[str]) -> None:
    """In two at a time: one more connection of the three kept for the superuser is in use."""
    left = iter(names)
    refused: list[builtin_functions.ChangedError] = []

    async def work() -> None:
        for name in left:
            try:
                await _within(access, name)
            except builtin_functions.ChangedError as error:
                refused.append(error)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    if refused:
        raise refused[0]


async def _within(access: ServerAccess, database: str) -> None:
    source = access.installation.source
    major = int(source.major)
    opened = connections.administration(
        access.folder, access.ours, database, major=major, limits=LIMITS, keys=access.keys
    )
    try:
        async with opened as there, connections.unhindered(there, access.folder, access.ours):
            functions = builtin_functions.read(access.installation.functions)
            await clear_one(there, database, extensions.called(source), functions)
    except builtin_functions.ChangedError:
        raise
    except (*FAILURES, EngineError) as error:
        _log(error, database)


async def clear_one(
    connection: Connection, database: str, called: Called, functions: Functions
) -> None:
    """In the database of this connection."""
    ours = database in searches.NAMES
    asked = await connection.execute(searches.anything(called, functions, ours=ours))
    if await asked.fetchone() == (False,):
        return
    await connection.execute(SILENCE.encode())
    await connection.execute("SET allow_system_table_mods = on")
    await builtin_functions.restore(connection, database, functions)
    await connection.execute(DEFAULTS)
    if await (await connection.execute(searches.GRANTED.encode())).fetchone() is not None:
        # As every cluster of an earlier version of ours.
        for statement in searches.DENY:
            await connection.execute(statement.encode())
    for right in searches.RIGHTS:
        if (await connection.execute(searches.restored(*right).encode())).rowcount:
            _warn("cell.postgres.rights_restored", database, f"rights of {right[0]}")
    await connection.execute(GRANTS.encode())
    for query in searches.everything(called, ours=ours):
        cursor = await connection.execute(searches.named(query))
        for classid, oid, action, told in await cursor.fetchall():
            name = bytes.fromhex(told).decode(errors="replace")
            cascade = "CASCADE" if action == "CASCADE" else ""
            try:
                statement = CHANGE.format(classid, oid, action, OWNER, cascade)
                await connection.execute(statement.encode())
            except FAILURES as error:
                _log(error, database, name)
                continue
            done = "handed_over" if action == "OWNER" else "dropped"
            _warn(f"cell.postgres.leftover_{done}", database, name)


def _warn(event: str, database: str, name: str) -> None:
    log.warning(event, database=database, object=name, reason=REASON)


def _log(error: BaseException, database: str | None, name: str | None = None) -> None:
    reason = str(error)[:REASON_CHARACTERS] or type(error).__name__
    log.warning("cell.postgres.leftover_kept", database=database, object=name, reason=reason)
