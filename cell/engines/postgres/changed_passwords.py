"""Passwords of our logins that were changed with SQL: found, and put back.

Each role can change its own password, and whatever its session runs can: a trigger, for example,
that a former holder of a credential left behind.
"""

import json
from collections.abc import Mapping

import psycopg
import structlog
from psycopg import sql

from cell.engines.driver import EngineError, Login
from cell.engines.postgres import connections, roles
from cell.engines.postgres.connections import NotRunningError, PostgresHeldUpError
from cell.runtime.engine_files import EnginePath

log = structlog.get_logger("cell.postgres")

# As the cell's own, of a server that an earlier version of the cell has started.
MISSING = """
SELECT FROM pg_catalog.json_each_text(%s::json) AS w (name, verifier)
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = w.name)
"""
DIFFERING = f"""
SELECT a.rolname FROM pg_catalog.pg_authid a
JOIN pg_catalog.json_each_text(%s::json) AS w (name, verifier) ON w.name = a.rolname
WHERE a.rolcanlogin AND a.rolpassword IS DISTINCT FROM w.verifier AND a.rolname IN ({roles.FAMILY})
"""  # noqa: S608 - our own words


async def restore(folder: EnginePath, ours: Login, verifiers: Mapping[str, str]) -> list[str]:
    """Nothing but passwords: whether a login works at all is a rotation's to say."""
    try:
        async with (
            connections.administration(folder, ours) as connection,
            connections.unhindered(connection, folder, ours),
        ):
            missing = await connection.execute(MISSING, [json.dumps(dict(verifiers))])
            if missing.rowcount:
                async with connection.transaction():
                    await roles.allow(connection, verifiers)
            found = await connection.execute(DIFFERING, [json.dumps(dict(verifiers))])
            names = [name for (name,) in await found.fetchall()]
            for name in names:
                statement = sql.SQL("ALTER ROLE {} PASSWORD {}")
                await connection.execute(
                    statement.format(sql.Identifier(name), sql.Literal(verifiers[name]))
                )
                log.warning("cell.postgres.password_restored", role=name)
    except NotRunningError:
        # Its logins are set at its next start, before anybody is let in.
        return []
    except (PostgresHeldUpError, psycopg.Error) as error:
        raise EngineError(f"the passwords of logins could not be restored: {error}") from error
    return names
