"""Whether all data of a server can be read, without a line of its owner's code.

Checksums of the files are compared while no server runs. A server that runs copies each table to
nowhere: no plan is made for that, so nothing of the owner's is evaluated as a query would, be it an
index's expression, a policy or a generated column. Types that owners can make are written by
functions of the server's.
"""

import psycopg

from cell.engines.contents import Contents
from cell.engines.driver import EngineError, Login
from cell.engines.postgres import connections, data_folder, roles, searches
from cell.engines.postgres.connections import NotRunningError, PostgresHeldUpError
from cell.engines.postgres.installation import Installation, Installations
from cell.engines.postgres.roles import Connection
from cell.layout import Site
from cell.runtime.host import Host
from cell.runtime.process import LaunchError

CHECK_TIMEOUT_S = 6 * 3600.0
# Of clusters that were made without, as those of other services.
WITHOUT_CHECKSUMS = "checksums are not enabled"
# Not those whose removal was broken off, which the server lets nobody into.
DATABASES = """
SELECT pg_catalog.encode(pg_catalog.textsend(datname::pg_catalog.text), 'hex')
FROM pg_catalog.pg_database WHERE datallowconn AND NOT datistemplate AND datconnlimit <> -2
"""
EXTENSIONS = "SELECT extname FROM pg_catalog.pg_extension WHERE extname <> 'plpgsql'"
# Names may be of any bytes, and so they stay on the server. Values are not converted: there are
# encodings of which not every text has one in that of the session.
TABLES = f"""
SELECT c.oid, pg_catalog.encode(pg_catalog.textsend(n.nspname || '.' || c.relname), 'hex')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND c.oid >= {searches.FIRST}
"""  # noqa: S608 - our own words
READ = """
DO $$
DECLARE
    named text;
    read bigint;
BEGIN
    SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) INTO named
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = {0};
    EXECUTE 'COPY ' || named || ' TO ''/dev/null'' WITH (ENCODING '
        || pg_catalog.quote_literal(pg_catalog.getdatabaseencoding()) || ')';
    GET DIAGNOSTICS read = ROW_COUNT;
    PERFORM pg_catalog.set_config('menagerie.rows', read::text, false);
END $$
"""
ROWS = "SELECT pg_catalog.current_setting('menagerie.rows')"


async def check_files(
    host: Host, installations: Installations, installation: Installation, site: Site
) -> None:
    """Of every page of every file, indexes included; of a server that was ended in order."""
    words = [
        *(installation.program("pg_checksums"), "--check"),
        *("-D", str(host.view(site).data)),
    ]
    try:
        await installations.run(installation, site, words, timeout_s=CHECK_TIMEOUT_S)
    except LaunchError as error:
        if WITHOUT_CHECKSUMS not in str(error):
            raise EngineError("the checksums of its files are wrong") from error


async def examine(site: Site, ours: Login) -> Contents:
    """Reads every table of every database that takes connections."""
    folder, major = site.run, int(data_folder.major(site) or 0)
    counted: list[tuple[str, str, str]] = []
    extensions: set[str] = set()
    try:
        async with connections.administration(folder, ours) as connection:
            found = await (await connection.execute(DATABASES)).fetchall()
        for (encoded,) in found:
            name = bytes.fromhex(encoded)
            # One of other bytes is given another name when a server starts, if it can be.
            if not roles.is_text(name):
                continue
            opened = connections.administration(folder, ours, name.decode(), major=major)
            async with opened as inside:
                asked = await inside.execute(EXTENSIONS)
                extensions |= {str(extension) for (extension,) in await asked.fetchall()}
                counted += [(encoded, table, rows) for table, rows in await _read(inside)]
    except (NotRunningError, PostgresHeldUpError) as error:
        raise EngineError("the server does not respond") from error
    except (psycopg.Error, UnicodeError) as error:
        raise EngineError(f"the data cannot be read: {error}") from error
    return Contents.of(counted, extensions)


async def _read(connection: Connection) -> list[tuple[str, str]]:
    tables = await (await connection.execute(TABLES.encode())).fetchall()
    counted = []
    for oid, name in tables:
        await connection.execute(READ.format(oid).encode())
        row = await (await connection.execute(ROWS)).fetchone()
        assert row is not None
        counted.append((str(name), str(row[0])))
    return counted
