"""What only a superuser can have made and the cell did not: it is dropped, or becomes the owner's.

Nobody should become one. Whoever did by a fault of the server or of an extension must not stay it:
each start, rotation, restore and upgrade looks in every database. What hides in rows of the server
itself (a changed body of a function of its own) is not found.
"""

import asyncio
from pathlib import Path

import structlog

from cell.engines.driver import EngineError, Login
from cell.engines.postgres import connections, roles
from cell.engines.postgres.ended import FAILURES, LIMITS
from cell.engines.postgres.roles import OWNER, Connection

log = structlog.get_logger("cell.postgres")

WITHIN_S = 20.0
REASON = "only a superuser can have made it"
REASON_CHARACTERS = 200
# Objects with lower numbers are of a new cluster.
FIRST = 16384
# The administrator works in them, and owners can make nothing there.
NAMES = ("postgres", "template0", "template1")
OURS = f"{NAMES}"
# Created by owners before it was found to be unsafe to create; unlike that, its use is safe.
FORMERLY = "earthdistance"
# Whatever they are a part of, nobody may make them but a superuser.
CLASSES = (
    *(("pg_event_trigger", "true"), ("pg_language", "true"), ("pg_am", "true")),
    *(("pg_ts_parser", "true"), ("pg_ts_template", "true"), ("pg_foreign_data_wrapper", "true")),
    # Of the server's own relations, and of its own types.
    *(("pg_trigger", f"o.tgrelid < {FIRST}"), ("pg_rewrite", f"o.ev_class < {FIRST}")),
    (
        "pg_cast",
        """NOT EXISTS (SELECT FROM pg_type t WHERE t.typowner <> 10
        AND t.oid IN (o.castsource, o.casttarget))""",
    ),
    # They call addresses, except what the server makes for each aggregate and range.
    (
        "pg_proc",
        """o.prokind <> 'a' AND EXISTS (SELECT FROM pg_language l WHERE l.oid = o.prolang
        AND NOT lanpltrusted
        AND NOT (lanname = 'internal' AND o.prosrc ~ '^(multi)?range_constructor[0-3]$'))""",
    ),
    ("pg_publication", "o.pubowner = 10"),
)
# With the columns of the owner and, where there is one, of the schema.
OWNED = (
    *(("pg_proc", "proowner", "pronamespace"), ("pg_class", "relowner", "relnamespace")),
    *(("pg_type", "typowner", "typnamespace"), ("pg_namespace", "nspowner", "oid")),
    *(("pg_operator", "oprowner", "oprnamespace"), ("pg_opclass", "opcowner", "opcnamespace")),
    *(("pg_opfamily", "opfowner", "opfnamespace"), ("pg_collation", "collowner", "collnamespace")),
    *(("pg_conversion", "conowner", "connamespace"), ("pg_ts_dict", "dictowner", "dictnamespace")),
    *(("pg_ts_config", "cfgowner", "cfgnamespace"), ("pg_largeobject_metadata", "lomowner", "oid")),
    ("pg_statistic_ext", "stxowner", "stxnamespace"),
)
# Parts of something else, which follow it, and temporary schemas, which the server makes.
PARTS = {
    "pg_class": "o.relkind NOT IN ('i', 'I', 't', 'c') AND NOT EXISTS (SELECT FROM pg_depend d"
    " WHERE d.classid = 'pg_class'::regclass AND d.objid = o.oid AND d.deptype IN ('a', 'i')"
    " AND d.refclassid = 'pg_class'::regclass AND o.relkind = 'S')",
    "pg_type": "o.typtype <> 'm' AND (o.typrelid = 0 OR EXISTS"
    " (SELECT FROM pg_class c WHERE c.oid = o.typrelid AND c.relkind = 'c'))"
    " AND NOT EXISTS (SELECT FROM pg_type e WHERE e.typarray = o.oid)",
    "pg_namespace": "o.nspname !~ '^pg_(toast_)?temp_'",
    "pg_proc": "o.prosrc !~ '^(multi)?range_constructor[0-3]$'",
}
MEMBERS = """
SELECT e.extname FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
"""
# Schemas of an extension, in which it makes what it needs (TimescaleDB).
SCHEMAS = "SELECT objid FROM pg_depend WHERE deptype = 'e' AND classid = 'pg_namespace'::regclass"
# No script of those that owners create makes functions that run as the superuser.
DEFINERS = "o.prosecdef AND o.proowner = 10 AND n.extname NOT LIKE 'timescaledb%'"
EXTENSIONS = f"""
SELECT 'pg_extension'::regclass, o.oid, 'DROP' FROM pg_extension o
WHERE oid >= {FIRST} AND extname <> '{FORMERLY}' AND extname NOT LIKE 'timescaledb%'
AND EXISTS (SELECT FROM pg_available_extension_versions v WHERE v.name = extname)
AND NOT EXISTS (SELECT FROM pg_available_extension_versions v
    WHERE v.name = extname AND (v.trusted OR NOT v.superuser))
"""  # noqa: S608 - our own words
SUBSCRIPTIONS = """
SELECT 'pg_subscription'::regclass, oid, 'DROP' FROM pg_subscription
WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
TOLD = "encode(textsend(i.type || ' ' || i.identity), 'hex')"
# Nobody's statements begin one before it is dropped; rows can be changed without that.
SILENCE = f"""
UPDATE pg_event_trigger o SET evtenabled = 'D' WHERE oid >= {FIRST} AND evtenabled <> 'D'
AND NOT EXISTS ({MEMBERS} AND d.classid = 'pg_event_trigger'::regclass AND d.objid = o.oid)
"""  # noqa: S608 - our own words
DEFAULTS = """
WITH gone AS (DELETE FROM pg_default_acl WHERE defaclrole = 10 RETURNING oid)
DELETE FROM pg_depend WHERE classid = 'pg_default_acl'::regclass AND objid IN (SELECT oid FROM gone)
"""
# What the server's own objects let whom do, as in a new cluster; owners cannot change it.
RIGHTS = (
    ("pg_proc", "proacl", "o.pronamespace = 'pg_catalog'::regnamespace", "oid", "0"),
    ("pg_class", "relacl", "o.relnamespace = 'pg_catalog'::regnamespace", "oid", "0"),
    ("pg_attribute", "attacl", "o.attnum <> 0", "attrelid", "attnum"),
    ("pg_language", "lanacl", "true", "oid", "0"),
    ("pg_namespace", "nspacl", "o.nspname = 'pg_catalog'", "oid", "0"),
)
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
CLOSED = """
SELECT oid, encode(textsend(datname::text), 'hex'), datallowconn FROM pg_database
WHERE datconnlimit <> -2 ORDER BY oid
"""
ALLOW = "UPDATE pg_database SET datallowconn = %s WHERE oid = %s"
# Of the databases that are ours; `public` there is its owner's, who is the superuser.
DATABASE_RIGHTS = f"""
DO $$
DECLARE one record;
BEGIN
    FOR one IN SELECT d.datname, a.grantee::regrole AS grantee FROM pg_database d,
        aclexplode(d.datacl) a WHERE d.datname IN {OURS} AND a.grantee NOT IN (0, 10)
    LOOP
        EXECUTE format('REVOKE ALL ON DATABASE %I FROM %s', one.datname, one.grantee);
    END LOOP;
    FOR one IN SELECT DISTINCT d.datname FROM pg_database d, aclexplode(d.datacl) a
        WHERE d.datname IN {OURS} AND a.grantee = 0 AND a.privilege_type <> 'CONNECT'
    LOOP
        EXECUTE format('REVOKE CREATE, TEMPORARY ON DATABASE %I FROM PUBLIC', one.datname);
    END LOOP;
    FOR one IN SELECT d.datname FROM pg_database d WHERE d.datname IN {OURS}
        AND NOT has_database_privilege('pg_monitor', d.oid, 'CONNECT')
    LOOP
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO PUBLIC', one.datname);
    END LOOP;
    FOR one IN SELECT datname FROM pg_database WHERE datdba = 10 AND oid >= {FIRST} LOOP
        EXECUTE format('ALTER DATABASE %I OWNER TO {OWNER}', one.datname);
    END LOOP;
END $$
"""  # noqa: S608 - our own words


async def clear(folder: Path, ours: Login, major: int) -> None:
    """In all databases; raises nothing that has to do with what is in them."""
    try:
        async with (
            asyncio.timeout(WITHIN_S),
            connections.administration(folder, ours) as connection,
        ):
            await connection.execute(DATABASE_RIGHTS.encode())
            for oid, name, allowed in await (await connection.execute(CLOSED)).fetchall():
                text = bytes.fromhex(name)
                if roles.is_text(text):
                    await _within(connection, folder, ours, (oid, text.decode(), allowed), major)
    except (*FAILURES, TimeoutError) as error:
        _log(error, None)


async def _within(
    connection: Connection, folder: Path, ours: Login, found: tuple[int, str, bool], major: int
) -> None:
    """Also in databases that let nobody in, which others are copies of."""
    oid, database, allowed = found
    try:
        if not allowed:
            await connection.execute(ALLOW, [True, oid])
        async with (
            connections.administration(folder, ours, database, major=major) as there,
            connections.unhindered(there, folder, ours),
        ):
            for limit in LIMITS:
                await there.execute(f"SET {limit}".encode())
            await clear_one(there, database)
    except (*FAILURES, EngineError) as error:
        _log(error, database)
    finally:
        if not allowed:
            await connection.execute(ALLOW, [False, oid])


async def clear_one(connection: Connection, database: str) -> None:
    """In the database of this connection."""
    await connection.execute(SILENCE.encode())
    await connection.execute("SET allow_system_table_mods = on")
    await connection.execute(DEFAULTS)
    for right in RIGHTS:
        if (await connection.execute(_restored(*right).encode())).rowcount:
            _warn("cell.postgres.rights_restored", database, f"rights of {right[0]}")
    await connection.execute(_ended_grants())
    for query in _queries(database):
        for classid, oid, action, told in await (await connection.execute(query)).fetchall():
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


def _queries(database: str) -> list[bytes]:
    ours = database in NAMES
    found = [_named(_reserved(*each)) for each in CLASSES]
    servers = f"""SELECT 'pg_foreign_server'::regclass, o.oid, 'CASCADE' FROM pg_foreign_server o
        WHERE NOT EXISTS ({MEMBERS} AND d.classid = 'pg_foreign_data_wrapper'::regclass
            AND d.objid = o.srvfdw AND e.extname LIKE 'timescaledb%')"""  # noqa: S608 - our own
    found += [_named(each) for each in (servers, SUBSCRIPTIONS, EXTENSIONS)]
    found += [_named(_owned(*each, ours=ours)) for each in OWNED]
    return found


def _reserved(catalogue: str, condition: str) -> str:
    action = "CASCADE" if catalogue == "pg_foreign_data_wrapper" else "DROP"
    return f"""SELECT '{catalogue}'::regclass, o.oid, '{action}' FROM {catalogue} o
        WHERE o.oid >= {FIRST} AND ({condition})
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = '{catalogue}'::regclass
            AND d.objid = o.oid AND d.deptype IN ('e', 'i')
            AND d.refclassid <> 'pg_class'::regclass)
    """  # noqa: S608 - our own words


def _owned(catalogue: str, owner: str, schema: str, *, ours: bool) -> str:
    action = "CASCADE" if ours and catalogue != "pg_largeobject_metadata" else "OWNER"
    member = f"{MEMBERS} AND d.classid = '{catalogue}'::regclass AND d.objid = o.oid"
    definers = ""
    if catalogue == "pg_proc":
        definers = f"OR EXISTS (SELECT FROM ({member}) n WHERE {DEFINERS})"
    # Who makes a large object gives it its number.
    first = 0 if catalogue == "pg_largeobject_metadata" else FIRST
    named = catalogue.removesuffix("_metadata")
    return f"""SELECT '{named}'::regclass, o.oid, '{action}' FROM {catalogue} o
        WHERE o.oid >= {first} AND o.{owner} = 10 AND {PARTS.get(catalogue, "true")}
        AND (NOT EXISTS ({member}) AND o.{schema} NOT IN ({SCHEMAS}) {definers})
    """  # noqa: S608 - our own words


def _named(query: str) -> bytes:
    return f"""SELECT f.c::oid, f.o, f.a, {TOLD} FROM ({query}) AS f (c, o, a),
        pg_identify_object(f.c, f.o, 0) AS i""".encode()  # noqa: S608 - our own words


def _restored(catalogue: str, rights: str, condition: str, oid: str, part: str) -> str:
    initial = f"""(SELECT p.initprivs FROM pg_init_privs p
        WHERE p.classoid = '{"pg_class" if part != "0" else catalogue}'::regclass
        AND p.objoid = o.{oid} AND p.objsubid = {part if part == "0" else f"o.{part}"})"""  # noqa: S608
    return f"""UPDATE {catalogue} o SET {rights} = {initial}
        WHERE o.{oid} < {FIRST} AND {condition} AND o.{rights} IS DISTINCT FROM {initial}"""  # noqa: S608


def _ended_grants() -> bytes:
    """What kept roles from being dropped for the sake of such rights."""
    return f"""DELETE FROM pg_shdepend WHERE deptype = 'a' AND objid < {FIRST}
        AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND classid IN ('pg_proc'::regclass, 'pg_class'::regclass, 'pg_language'::regclass)
        """.encode()  # noqa: S608 - our own words


def _warn(event: str, database: str, name: str) -> None:
    log.warning(event, database=database, object=name, reason=REASON)


def _log(error: BaseException, database: str | None, name: str | None = None) -> None:
    reason = str(error)[:REASON_CHARACTERS] or type(error).__name__
    log.warning("cell.postgres.leftover_kept", database=database, object=name, reason=reason)
