"""Data from elsewhere becomes an instance's: recovered where asked for, and closed to its past."""

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

from cell.engines.driver import Login
from cell.engines.postgres import connections, leftovers, roles, scram, server, wal
from cell.engines.postgres.configuration import Family
from cell.engines.postgres.installation import Installation
from cell.engines.postgres.server import NothingLaterError
from cell.engines.wal_sources import RecoveryTarget
from cell.layout import Site
from cell.runtime import engine_files
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host

LOG_FOLDER = "pg_wal"
# In the folder of a backup that was unpacked.
WAL = "wal"


def _options(target: RecoveryTarget, *, to_the_end: bool = False) -> tuple[str, ...]:
    """Settings of the server that recovers. All WAL it needs lies with its data."""
    found = (
        *("restore_command=false", "recovery_target_timeline=current", "hot_standby=off"),
        # What was replayed is removed, and takes none of the instance's storage.
        "wal_recycle=off",
    )
    if to_the_end:
        return found
    moment = datetime.fromtimestamp(target.at, UTC).isoformat(sep=" ", timespec="microseconds")
    return (*found, f"recovery_target_time={moment}", "recovery_target_action=promote")


async def take_over(
    host: Host,
    family: Family,
    installation: Installation,
    site: Site,
    next_site: Site,
    superuser: Login,
    target: RecoveryTarget | None = None,
) -> None:
    """The superuser gets this instance's password; no credential of the data's past works."""
    verifier = scram.verifier(superuser.password)
    opened = server.private(host, family, installation, next_site, site.log)
    if target is not None:
        opened = _recovered(host, family, installation, site, next_site, target)
    async with opened as folder, connections.administration(folder, server.SELF) as connection:
        await connection.execute(wal.DROP.encode(), (wal.SLOTS, ""))
        await roles.set_password(connection, verifier)
        await roles.disable(connection)
        await leftovers.clear(folder, server.SELF, installation)


@contextlib.asynccontextmanager
async def _recovered(
    host: Host,
    family: Family,
    installation: Installation,
    site: Site,
    next_site: Site,
    target: RecoveryTarget,
) -> AsyncIterator[EnginePath]:
    """As `server.private`, of a server that has replayed its WAL and takes writes.

    It is told that the moment is archived. Where nothing was committed after it, all there is was
    committed by then, which a server takes for a failure.
    """
    given = (host, family, installation, next_site, site.log)
    async with contextlib.AsyncExitStack() as stack:
        try:
            options = _options(target)
            opened = server.private(*given, recovery=options, within_s=target.within_s)
            folder = await stack.enter_async_context(opened)
        except NothingLaterError:
            options = _options(target, to_the_end=True)
            opened = server.private(*given, recovery=options, within_s=target.within_s)
            folder = await stack.enter_async_context(opened)
        yield folder


def add_wal(folder: Path, data: EnginePath, owner: int | None) -> None:
    """What was archived takes the place of what the copy has of it."""
    for name in engine_files.names(folder):
        place = data / LOG_FOLDER / name
        engine_files.remove(place)
        engine_files.copy_file(folder / name, place, owner)
