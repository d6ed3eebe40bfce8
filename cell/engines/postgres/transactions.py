"""How many transactions a server has had, without those of the cell's own database."""

import psycopg

from cell.engines.driver import Login
from cell.engines.postgres import connections
from cell.engines.postgres.connections import NotRunningError
from cell.runtime.engine_files import EnginePath

# Whoever resets the statistics makes it begin anew.
TRANSACTIONS = """
SELECT coalesce(sum(xact_commit + xact_rollback), 0)::bigint FROM pg_catalog.pg_stat_database
WHERE datname <> %s
"""


async def count(folder: EnginePath, login: Login) -> int | None:
    """None where it does not say now."""
    try:
        async with connections.administration(folder, login) as connection:
            found = await connection.execute(TRANSACTIONS, [connections.OURS])
            row = await found.fetchone()
    except (psycopg.Error, NotRunningError, OSError):
        return None
    return None if row is None else int(row[0])
