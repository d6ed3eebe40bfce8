"""From one major version to another, by pg_upgrade, on a copy."""

import asyncio
import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import structlog
from psycopg import sql

from cell.engines.driver import EngineError
from cell.engines.postgres import (
    archive,
    connections,
    data_folder,
    leftovers,
    owner_code,
    roles,
    server,
    statistics,
)
from cell.engines.postgres.configuration import Family
from cell.engines.postgres.installation import INSIDE, Installation, Installations
from cell.layout import Site
from cell.runtime import engine_files
from cell.runtime.confinement import Mount
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import INSIDE as INSTANCE
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread
from cell.runtime.process import LaunchError

log = structlog.get_logger("cell.postgres")

# Seen through one mount, as there are no hard links from one to another.
BOTH = INSTANCE / "both"
FORMER_PROGRAMS = Path("/opt/former")
DETAILS = "pg_upgrade_output.d"
DETAILS_NAMES = "pg_upgrade_dump_[0-9]*.log"
# Of databases; the tool makes one folder.
DETAILS_MAX, FOLDERS_MAX = 10, 2
DETAILS_BYTES_MAX = 1 << 20
COMPLAINT_CHARACTERS = 500
ERRORS_MAX = 10
ERROR = re.compile(r"\b(error|fatal|panic):", re.IGNORECASE)
TIMEOUT_S = 4 * 3600.0
# The tool writes into the folder it runs in, and complains on its output.
IN_FOLDER = 'cd "$1" && shift && exec "$@" 1>&2'
# Releases since November 2026 mark columns with an option that those before it do not take. Their
# own dumps leave it out, and columns that are older have none.
MARK = b"pg_attver"
REMOVE_MARKS = """
UPDATE pg_catalog.pg_attribute SET attoptions = nullif(
    ARRAY(SELECT o FROM unnest(attoptions) AS o WHERE o NOT LIKE 'pg\\_attver=%'), '{}')
WHERE EXISTS (SELECT FROM unnest(attoptions) AS o WHERE o LIKE 'pg\\_attver=%')
"""
CLOSED = "SELECT datname FROM pg_catalog.pg_database WHERE NOT datallowconn AND NOT datistemplate"
DATABASES = "SELECT datname FROM pg_catalog.pg_database WHERE datallowconn"
EXTENSIONS = "SELECT extname FROM pg_catalog.pg_extension ORDER BY extname"
OUTDATED = """
SELECT extname FROM pg_catalog.pg_extension JOIN pg_catalog.pg_available_extensions
ON name = extname WHERE installed_version <> default_version
"""


async def upgrade(
    host: Host,
    family: Family,
    installations: Installations,
    former: tuple[Installation, Site],
    wanted: tuple[Installation, Site],
) -> None:
    """Fills the data of the wanted site from the former one's, which stays as it is."""
    old, site = former
    new, new_site = wanted
    if host.owner(site) is not None and not host.hides_files:
        raise EngineError("an upgrade needs bubblewrap, which this cell does not have")
    # Changed before it is read, and then the one whose files the new data are.
    copy = Site(site.instance_id, site.uid, new_site.directory / "former", site.run)
    copy.make(host.owner(copy))
    await in_own_thread(archive.copy, site.data, copy.data, host.owner(site))
    try:
        # A server that was killed has to put its data in order first.
        async with server.private(host, family, old, copy, site.log) as folder:
            await _prepare(folder, old, new)
        await installations.initialise(new, new_site)
        await _run(host, family, installations, (old, copy), wanted)
        async with server.private(host, family, new, new_site, site.log) as folder:
            await _finish(folder, int(new.source.major))
        statistics.owe(site)
    except (LaunchError, psycopg.Error, UnicodeError) as error:
        await asyncio.to_thread(note, site, new_site, error)
        raise EngineError(
            f"the data could not be upgraded to PostgreSQL {new.source.major}; nothing was "
            "changed, and the instance's log has the details"
        ) from error


async def _prepare(folder: EnginePath, old: Installation, new: Installation) -> None:
    async with connections.administration(folder, server.SELF) as connection:
        await roles.expel(connection)
    await leftovers.clear(folder, server.SELF, old)
    await _refuse_closed(folder)
    await _refuse_without_extensions(folder, old, new)
    knows_marks = await asyncio.to_thread(_knows_marks, new)
    major = int(old.source.major)
    for database in await _databases(folder):
        inside = connections.administration(folder, server.SELF, database, major=major)
        async with inside as connection:
            if not knows_marks:
                await connection.execute(REMOVE_MARKS)
            await owner_code.put(connection, database)


def note(site: Site, new_site: Site, error: Exception) -> None:
    """What the tools said, which is about folders that owners do not see."""
    said = [_complaint(each) for each in (str(error), *_details(new_site.data / DETAILS))]
    log.warning("cell.postgres.upgrade_failed", instance_id=site.instance_id, said=said)
    with site.log.open("a") as file:
        file.writelines(f"upgrade failed: {line}\n" for each in said for line in each.splitlines())


def _details(folder: EnginePath) -> Iterator[str]:
    for each in engine_files.names(folder)[:FOLDERS_MAX]:
        logs = folder / each / "log"
        for name in fnmatch.filter(engine_files.names(logs), DETAILS_NAMES)[:DETAILS_MAX]:
            yield data_folder.read(logs / name, DETAILS_BYTES_MAX, end=True)


def _complaint(told: str) -> str:
    """Its errors, and where it names none its end: after an error may come a statement."""
    errors = [line for line in told.splitlines() if ERROR.search(line)][:ERRORS_MAX]
    return "\n".join(line[:COMPLAINT_CHARACTERS] for line in errors) or told[-COMPLAINT_CHARACTERS:]


async def _refuse_closed(folder: EnginePath) -> None:
    """The tool would have to look into them."""
    async with connections.administration(folder, server.SELF) as connection:
        found = await (await connection.execute(CLOSED)).fetchall()
    if found:
        told = ", ".join(name for (name,) in found)
        raise EngineError(
            f"the data could not be upgraded: these databases allow no connections: {told}; "
            "run ALTER DATABASE … ALLOW_CONNECTIONS true, and try again"
        )


async def _refuse_without_extensions(
    folder: EnginePath, old: Installation, new: Installation
) -> None:
    """Its data would be there, and nothing that could read it."""
    lacking: dict[str, list[str]] = {}
    for database in await _databases(folder):
        major = int(old.source.major)
        inside = connections.administration(folder, server.SELF, database, major=major)
        async with inside as connection:
            for (name,) in await (await connection.execute(EXTENSIONS)).fetchall():
                if not new.source.has(name):
                    lacking.setdefault(name, []).append(database)
    if lacking:
        told = ", ".join(f"{name} (in {', '.join(where)})" for name, where in lacking.items())
        version = new.source.major
        raise EngineError(
            f"PostgreSQL {version} does not have these extensions here: {told};"
            " drop them first with DROP EXTENSION, or choose a version that has them"
        )


async def _run(
    host: Host,
    family: Family,
    installations: Installations,
    former: tuple[Installation, Site],
    wanted: tuple[Installation, Site],
) -> None:
    old, old_site = former
    new, new_site = wanted
    mounts: tuple[Mount, ...] = ()
    old_data, new_data = old_site.data.outside, new_site.data.outside
    old_binaries = old.binaries
    if host.hides_files:
        programs = [Mount(mount.source, FORMER_PROGRAMS, writable=False) for mount in old.mounts]
        mounts = (*programs, Mount(new_site.directory, BOTH, writable=True))
        old_data, new_data = (
            BOTH / each.relative_to(new_site.directory) for each in (old_data, new_data)
        )
        old_binaries = FORMER_PROGRAMS / old.binaries.relative_to(INSIDE)
    access = server.write(host, new_site, server.OPEN_ACCESS, b"local all all trust\n")
    view = host.view(new_site)
    options = f"-c hba_file={access} -c shared_preload_libraries={family.extension or ''}"
    options += " -c recovery_init_sync_method=syncfs"
    sockets = view.run / server.PRIVATE
    words = [
        *("/bin/sh", "-c", IN_FOLDER, "sh", str(sockets), new.program("pg_upgrade")),
        *("-U", roles.SUPERUSER, "-b", str(old_binaries), "-B", str(new.binaries)),
        *("-d", str(old_data), "-D", str(new_data), "-s", str(sockets)),
        # Everything is synchronised at once before it takes its place.
        *("-o", options, "-O", options, "--no-sync", "--link"),
    ]
    await installations.run(new, new_site, words, mounts=mounts, timeout_s=TIMEOUT_S)


async def _finish(folder: EnginePath, major: int) -> None:
    """Brings extensions to what the new version has.

    No statistics: to make them runs code of the owner, without the limits of the size here.
    """
    for database in await _databases(folder):
        inside = connections.administration(folder, server.SELF, database, major=major)
        async with inside as connection:
            for (name,) in await (await connection.execute(OUTDATED)).fetchall():
                try:
                    statement = sql.SQL("ALTER EXTENSION {} UPDATE").format(sql.Identifier(name))
                    await connection.execute(statement)
                except psycopg.Error as error:
                    # It works as it was; the owner may update it.
                    log.warning(
                        "cell.postgres.extension_kept", extension=name, reason=_short(error)
                    )
            # Not before: scripts of extensions run as the superuser, too.
            await owner_code.put_back(connection)


def _short(error: psycopg.Error) -> str:
    return str(error)[:COMPLAINT_CHARACTERS]


async def _databases(folder: EnginePath) -> list[str]:
    async with connections.administration(folder, server.SELF) as connection:
        return [name for (name,) in await (await connection.execute(DATABASES)).fetchall()]


def _knows_marks(installation: Installation) -> bool:
    return MARK in (installation.source.binaries / "pg_dump").read_bytes()
