"""A server for the driver alone: on a socket nobody is led to, and without a password."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

from cell.engines.driver import EngineError, Login
from cell.engines.postgres import configuration, connections, data_folder, roles
from cell.engines.postgres.configuration import Family
from cell.engines.postgres.connections import NotRunningError
from cell.engines.postgres.installation import Installation
from cell.layout import Site, write_atomically
from cell.runtime import engine_files, log_files
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host
from cell.runtime.process import LaunchError, Process
from cell.specification import Size

PRIVATE = "own"
OPEN_ACCESS = "trust.conf"
READY_WITHIN_S = 600.0
LOOK_AGAIN_S = 0.02
QUIT_WITHIN_S = 5.0
COMPLAINT_CHARACTERS = 500
# How a server says, of each version that we run, that nothing was committed after a moment.
NOTHING_LATER = "recovery ended before configured recovery target was reached"
# Enough for the work of an upgrade, whatever the instance's size.
SIZE = Size("private", 1.0, 2**30, 10**10, 10)
SELF = Login(roles.SUPERUSER, "")


class NothingLaterError(EngineError):
    """All WAL was replayed, and nothing of it was committed after the moment it was to end at."""


def write_configuration(
    host: Host, family: Family, installation: Installation, site: Site, size: Size
) -> bytes:
    """The server's files, in the folder it reads and cannot write; those in its data are blank."""
    data_folder.blank(site, host.owner(site))
    content = configuration.content(family, installation.source, size, host.view(site))
    write(host, site, configuration.FILE, content)
    write(host, site, configuration.ACCESS, configuration.ACCESS_CONTENT)
    write(host, site, configuration.IDENTITIES, b"")
    return content


def write(host: Host, site: Site, name: str, content: bytes) -> Path:
    """Answers where the server finds the file."""
    owner = host.owner(site)
    gid = -1 if owner is None else owner
    write_atomically(site.configuration / name, content, mode=0o640, gid=gid)
    return host.view(site).configuration / name


async def launch(
    host: Host,
    family: Family,
    installation: Installation,
    site: Site,
    size: Size,
    options: tuple[str, ...] = (),
) -> Process:
    view = host.view(site)
    decisive = configuration.decisive(family, installation.source, view)
    argv = [
        *(installation.program("postgres"), "-D", str(view.data)),
        *("-c", f"config_file={view.configuration / configuration.FILE}"),
        *(word for name, value in decisive.items() for word in ("-c", f"{name}={value}")),
        *(word for option in options for word in ("-c", option)),
    ]
    return await host.start(site, argv, {}, size, mounts=installation.mounts)


def reload(process: Process) -> None:
    """It reads its files again."""
    process.signal(signal.SIGHUP)


async def stop(process: Process, timeout_s: float) -> None:
    """Sessions are ended and everything is written; what takes too long recovers at its start."""
    if not await process.ends_by(signal.SIGINT, timeout_s):
        await quit_at_once(process)


async def quit_at_once(process: Process) -> None:
    """Every session ends wherever it is; what is committed is recovered at the next start."""
    if not await process.ends_by(signal.SIGQUIT, QUIT_WITHIN_S):
        await process.kill()


@contextlib.asynccontextmanager
async def private(
    host: Host,
    family: Family,
    installation: Installation,
    site: Site,
    log: Path,
    *,
    recovery: tuple[str, ...] = (),
    within_s: float = READY_WITHIN_S,
) -> AsyncIterator[EnginePath]:
    """The folder of its socket, once it answers; it has recovered by then, and ends in order.

    What keeps it from that is written to `log`, the instance's, as the site's own may not last.
    `recovery` are settings with which it replays archived WAL.
    """
    await asyncio.to_thread(write_configuration, host, family, installation, site, SIZE)
    if recovery:
        told = site.data / data_folder.RECOVERY
        await asyncio.to_thread(engine_files.make_file, told, host.owner(site))
    access = write(host, site, OPEN_ACCESS, b"local all all trust\n")
    folder = site.run / PRIVATE
    await asyncio.to_thread(engine_files.make_folder, folder, host.owner(site))
    options = (
        f"unix_socket_directories={host.view(site).run / PRIVATE}",
        f"hba_file={access}",
        # It would run code of the owner, without the size's limits.
        "autovacuum=off",
        *(("summarize_wal=off",) if int(installation.source.major) >= 17 else ()),  # noqa: PLR2004 - a version
        *recovery,
    )
    try:
        process = await launch(host, family, installation, site, SIZE, options)
    except LaunchError as error:
        # It may end before anybody has looked at it.
        raise await _not_opened(site, log) from error
    host.headroom.give(process.group, SIZE.memory_bytes)
    try:
        await _until_ready(site, process, folder, log, within_s)
        # What it needed to recover; it keeps what does not fit, and is not ended for that.
        await asyncio.to_thread(host.headroom.take_back, process.group, SIZE.memory_bytes)
        host.limit_cpu(process, SIZE.vcpu)
        yield folder
    finally:
        await stop(process, READY_WITHIN_S)
        await asyncio.to_thread(host.forget, site)


async def _until_ready(
    site: Site, process: Process, folder: EnginePath, log: Path, within_s: float
) -> None:
    deadline = time.monotonic() + within_s
    while True:
        if data_folder.takes_logins(site):
            with contextlib.suppress(NotRunningError):
                async with connections.administration(folder, SELF):
                    return
        if not process.alive:
            raise await _not_opened(site, log)
        if time.monotonic() > deadline:
            raise EngineError("the server did not open the data in time")
        await asyncio.sleep(LOOK_AGAIN_S)


async def _not_opened(site: Site, log: Path) -> EngineError:
    """What it complained of goes to the log: data and paths are for nobody who may not read it."""
    told = await asyncio.to_thread(log_files.tail, site.log, COMPLAINT_CHARACTERS)
    said = told.decode(errors="replace")
    if NOTHING_LATER in said:
        return NothingLaterError(NOTHING_LATER)
    complaint = said[-COMPLAINT_CHARACTERS:] or "it ended at once"
    with log.open("a") as file:
        file.writelines(f"data not opened: {line}\n" for line in complaint.splitlines())
    return EngineError("the data cannot be opened; the instance's log has the details")
