"""What is set for databases and roles, without what owners cannot set or clients cannot read."""

import structlog
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

log = structlog.get_logger("cell.postgres")

Connection = AsyncConnection[TupleRow]

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
