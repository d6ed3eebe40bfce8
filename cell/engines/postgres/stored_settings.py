"""What is set for databases and roles, without what owners cannot set or clients cannot read."""

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

log = structlog.get_logger("cell.postgres")

Connection = AsyncConnection[TupleRow]
Stored = list[tuple[int, int, list[str]]]
"""Numbers of databases and roles, which an upgrade keeps; and each setting's bytes."""

# Texts of any length are settings too, and compress well: to look through some hundred of them took
# longer than a rotation may. Beyond a few, what is compressed is not looked at, and so not kept.
LONG_SETTINGS = """
DELETE FROM pg_catalog.pg_db_role_setting WHERE pg_catalog.pg_column_size(setconfig) > 8192
OR ctid IN (SELECT ctid FROM pg_catalog.pg_db_role_setting
    WHERE pg_catalog.pg_column_compression(setconfig) IS NOT NULL
    ORDER BY pg_catalog.pg_column_size(setconfig), setdatabase, setrole OFFSET 100)
"""
# A server tells clients of these at each login, and libpq takes no such message of more than 30,000
# bytes: nobody who uses it gets in. Others may be as long as they are.
REPORTED = (
    *("search_path", "application_name", "client_encoding", "datestyle", "intervalstyle"),
    *("timezone", "default_transaction_read_only", "standard_conforming_strings"),
    "scram_iterations",
)
REPORTED_BYTES_MAX = 8192
_UNREADABLE = f"""pg_catalog.octet_length(c) > {REPORTED_BYTES_MAX}
    AND pg_catalog.lower(pg_catalog.split_part(c, '=', 1)) IN {REPORTED}"""
UNREADABLE_SETTINGS = f"""
UPDATE pg_catalog.pg_db_role_setting SET setconfig =
    ARRAY(SELECT c FROM pg_catalog.unnest(setconfig) AS c WHERE NOT ({_UNREADABLE}))
WHERE EXISTS (SELECT FROM pg_catalog.unnest(setconfig) AS c WHERE {_UNREADABLE})
"""  # noqa: S608 - our own words
# Settings for the superuser, for everybody, or for databases of ours, and those that owners cannot
# set.
FOREIGN_SETTINGS = """
UPDATE pg_catalog.pg_db_role_setting SET setconfig = ARRAY(
    SELECT c FROM pg_catalog.unnest(setconfig) AS c
    WHERE setrole <> 10 AND (setrole <> 0 OR setdatabase NOT IN (SELECT 0::oid UNION ALL
        SELECT oid FROM pg_catalog.pg_database
        WHERE datname IN ('postgres', 'template0', 'template1')))
    AND pg_catalog.lower(pg_catalog.split_part(c, '=', 1)) NOT IN (
        SELECT pg_catalog.lower(name) FROM pg_catalog.pg_settings WHERE context <> 'user'))
WHERE setrole = 10 OR setrole = 0 AND setdatabase IN (SELECT 0::oid UNION ALL
        SELECT oid FROM pg_catalog.pg_database
        WHERE datname IN ('postgres', 'template0', 'template1'))
OR EXISTS (SELECT FROM pg_catalog.unnest(setconfig) AS c
    WHERE pg_catalog.lower(pg_catalog.split_part(c, '=', 1)) IN (
        SELECT pg_catalog.lower(name) FROM pg_catalog.pg_settings WHERE context <> 'user'))
"""
EMPTY = "DELETE FROM pg_catalog.pg_db_role_setting WHERE setconfig = '{}'"
TAKE = """
WITH taken AS (DELETE FROM pg_catalog.pg_db_role_setting RETURNING setdatabase, setrole, setconfig)
SELECT setdatabase, setrole, ARRAY(
    SELECT pg_catalog.encode(pg_catalog.textsend(c), 'hex') FROM pg_catalog.unnest(setconfig) AS c)
FROM taken
"""
PUT_BACK = """
INSERT INTO pg_catalog.pg_db_role_setting (setdatabase, setrole, setconfig)
SELECT %s, %s, ARRAY(SELECT pg_catalog.convert_from(pg_catalog.decode(c, 'hex'), 'UTF8')
    FROM pg_catalog.unnest(%s::text[]) AS c)
"""


async def clear(connection: Connection) -> None:
    """At each start, rotation, restore and upgrade. Within a transaction."""
    if (long := (await connection.execute(LONG_SETTINGS)).rowcount) > 0:
        log.warning("cell.postgres.settings_removed", reason="they are too long", count=long)
    if (long := (await connection.execute(UNREADABLE_SETTINGS.encode())).rowcount) > 0:
        reason = "clients cannot read what the server tells them of these"
        log.warning("cell.postgres.settings_removed", reason=reason, count=long)
    if (await connection.execute(FOREIGN_SETTINGS)).rowcount:
        log.warning("cell.postgres.settings_removed", reason="only a superuser can have set them")
    await connection.execute(EMPTY.encode())


async def take(connection: Connection) -> Stored:
    """In a copy that is upgraded, whose tools would work with what is set."""
    return await (await connection.execute(TAKE)).fetchall()


async def put_back(connection: Connection, stored: Stored) -> None:
    """As they were, whatever the newer server would say of one: that is its owner's to read."""
    for database, role, settings in stored:
        try:
            await connection.execute(PUT_BACK, [database, role, settings])
        except psycopg.Error as error:
            # Of bytes that are no text, as only a database in no encoding takes.
            log.warning("cell.postgres.settings_lost", database_oid=database, reason=str(error))
