"""Dumps of a database by pg_dump, which is the server's own and logs in as the owner."""

from psycopg.conninfo import make_conninfo

from cell.engines.driver import EngineError, Login
from cell.engines.postgres.configuration import PORT
from cell.engines.postgres.installation import Installation
from cell.layout import Site
from cell.runtime.host import Host
from cell.runtime.tools import ToolCommand

CONNECT_TIMEOUT_S = 10
# A table that somebody changes the definition of; whoever comes after waits for the dump, too.
LOCK_WAIT_MS = 30_000


def command(
    host: Host, installation: Installation, site: Site, login: Login, database: str
) -> ToolCommand:
    """An archive of the custom format; EngineError where the installation has no pg_dump."""
    if not (installation.source.binaries / "pg_dump").exists():
        raise EngineError("this installation of PostgreSQL has no pg_dump; use one of your own")
    # Spelled out: a name may look like a whole connection string.
    where = make_conninfo(
        host=str(host.view(site).run),
        port=PORT,
        user=login.username,
        dbname=database,
        connect_timeout=CONNECT_TIMEOUT_S,
        application_name="menagerie dump",
        sslmode="disable",
        gssencmode="disable",
    )
    words = ["--format=custom", "--no-password", f"--lock-wait-timeout={LOCK_WAIT_MS}"]
    # Who listens there must not be told the password itself; versions before 16 do not ask.
    secret = {"PGPASSWORD": login.password, "PGREQUIREAUTH": "scram-sha-256"}
    argv = [installation.program("pg_dump"), *words, f"--dbname={where}"]
    return ToolCommand(argv, secret, installation.mounts)
