"""From one major version to another, by pg_upgrade, on a copy."""

import asyncio
import contextlib
import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import structlog
from psycopg import sql

from cell.engines.driver import EngineError, Login
from cell.engines.postgres import (
    archive,
    connections,
    data_folder,
    leftovers,
    lockouts,
    owner_code,
    roles,
    server,
    statistics,
    stored_settings,
)
from cell.engines.postgres.configuration import Family
from cell.engines.postgres.installation import INSIDE, Installation, Installations
from cell.layout import Site
from cell.runtime import engine_files
from cell.runtime.confinement import Mount
from cell.runtime.engine_files import EnginePath
from cell.runtime.engine_folders import INSIDE as INSTANCE
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
CAUSE_CHARACTERS = 200
NAMED_MAX = 5
ERRORS_MAX = 10
ERROR = re.compile(r"\b(error|fatal|panic):", re.IGNORECASE)
GOODBYE = "Failure, exiting"
FAULT = re.compile(r"^Your installation .*?(?=\n\n|\nA list |\Z)", re.DOTALL | re.MULTILINE)
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
# The tool gives these names to a shell, where it refuses line breaks; those of roles may have them.
BROKEN = r"SELECT datname FROM pg_catalog.pg_database WHERE datname::text ~ E'[\n\r]' ORDER BY 1"
# It connects to another database before it makes one, in the encoding of that.
ALIEN = f"SELECT datname FROM pg_catalog.pg_database d WHERE NOT {lockouts.USABLE} ORDER BY 1"  # noqa: S608 - our own words
# It would have to look into them.
CLOSED = "SELECT datname FROM pg_catalog.pg_database WHERE NOT datallowconn AND NOT datistemplate"
# Their removal was broken off, and it refuses them.
INVALID = "SELECT datname FROM pg_catalog.pg_database WHERE datconnlimit = -2"
REFUSED = (
    (
        INVALID,
        "the removal of these databases was interrupted",
        "DROP DATABASE …",
    ),
    (
        BROKEN,
        "the names of these databases contain line breaks",
        "ALTER DATABASE … RENAME TO …",
    ),
    (
        ALIEN,
        "these databases have an encoding without a conversion to UTF8",
        "move their data to a database in UTF8 and drop them",
    ),
    (
        CLOSED,
        "these databases allow no connections",
        "ALTER DATABASE … ALLOW_CONNECTIONS true",
    ),
)
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
            stored = await _prepare(folder, old, new)
        await installations.initialise(new, new_site)
        await _run(host, family, installations, (old, copy), wanted)
        async with server.private(host, family, new, new_site, site.log) as folder:
            await _finish(folder, int(new.source.major), stored)
        statistics.owe(site)
    except (LaunchError, psycopg.Error, UnicodeError) as error:
        why = await asyncio.to_thread(note, site, new_site, error)
        raise EngineError(
            f"the data could not be upgraded to PostgreSQL {new.source.major}: {why}; nothing was "
            "changed, and the instance's log has the details"
        ) from error


async def check(site: Site, superuser: Login) -> None:
    """Of a server that runs, as `refuse`; else it is seen in the copy."""
    with contextlib.suppress(connections.NotRunningError, psycopg.Error, UnicodeError):
        async with connections.administration(site.run, superuser) as connection:
            await refuse(connection)


async def refuse(connection: roles.Connection) -> None:
    """Raises EngineError where the tool would, without a word of why."""
    for query, why, remedy in REFUSED:
        found = await (await connection.execute(query.encode())).fetchall()
        if found:
            names = [name if name.isprintable() else ascii(name) for (name,) in found]
            told = ", ".join(names[:NAMED_MAX])
            raise EngineError(
                f"the data could not be upgraded: {why}: {told}; {remedy}, and try again"
            )


async def _prepare(
    folder: EnginePath, old: Installation, new: Installation
) -> stored_settings.Stored:
    """Answers the settings that databases and roles are to have again."""
    async with connections.administration(folder, server.SELF) as connection:
        await roles.expel(connection)
    await leftovers.clear(folder, server.SELF, old)
    async with connections.administration(folder, server.SELF) as connection:
        await refuse(connection)
    await _refuse_without_extensions(folder, old, new)
    knows_marks = await asyncio.to_thread(_knows_marks, new)
    major = int(old.source.major)
    for database in await _databases(folder):
        inside = connections.administration(folder, server.SELF, database, major=major)
        async with inside as connection:
            if not knows_marks:
                await connection.execute(REMOVE_MARKS)
            await owner_code.put(connection, database)
    async with connections.administration(folder, server.SELF) as connection:
        return await stored_settings.take(connection)


def note(site: Site, new_site: Site, error: Exception) -> str:
    """What the tools said, which is about folders that owners do not see; answers the cause."""
    told = [str(error), *_details(new_site.data / DETAILS)]
    said = list(filter(None, map(_errors, told))) or [told[0][-COMPLAINT_CHARACTERS:]]
    log.warning("cell.postgres.upgrade_failed", instance_id=site.instance_id, said=said)
    lines = [line for each in said for line in each.splitlines() if line.strip()]
    with site.log.open("a") as file:
        file.writelines(f"upgrade failed: {line}\n" for line in lines)
    # What the tool itself finds fault with; else what is no error of a server's stands at its end.
    errors = (
        [line for line in lines if ERROR.search(line)]
        or [" ".join(found[0].split()) for found in map(FAULT.search, told) if found]
        or [line for line in lines if GOODBYE not in line][-1:]
    )
    return (errors or [type(error).__name__])[0].strip()[:CAUSE_CHARACTERS]


def _details(folder: EnginePath) -> Iterator[str]:
    for each in engine_files.names(folder)[:FOLDERS_MAX]:
        logs = folder / each / "log"
        for name in fnmatch.filter(engine_files.names(logs), DETAILS_NAMES)[:DETAILS_MAX]:
            yield data_folder.read(logs / name, DETAILS_BYTES_MAX, end=True)


def _errors(told: str) -> str:
    """Not what comes after one, which may be a statement."""
    errors = [line for line in told.splitlines() if ERROR.search(line)][:ERRORS_MAX]
    return "\n".join(line[:COMPLAINT_CHARACTERS] for line in errors)


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


async def _finish(folder: EnginePath, major: int, stored: stored_settings.Stored) -> None:
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
    async with connections.administration(folder, server.SELF) as connection:
        await stored_settings.put_back(connection, stored)


def _short(error: psycopg.Error) -> str:
    return str(error)[:COMPLAINT_CHARACTERS]


async def _databases(folder: EnginePath) -> list[str]:
    async with connections.administration(folder, server.SELF) as connection:
        return [name for (name,) in await (await connection.execute(DATABASES)).fetchall()]


def _knows_marks(installation: Installation) -> bool:
    return MARK in (installation.source.binaries / "pg_dump").read_bytes()
