"""A server on a site's data that nobody is led to: for an upgrade, or to apply a log."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from cell.engines.driver import EngineError, Login
from cell.engines.mysql import client
from cell.layout import Site
from cell.runtime.confinement import Mount
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host
from cell.runtime.process import Process
from cell.specification import Size

START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 600.0
LOOK_AGAIN_S = 0.1
# So that what takes long in small sizes comes to its end.
VCPU_MIN = 1.0


@asynccontextmanager
async def running(
    host: Host,
    site: Site,
    words: list[str],
    size: Size,
    mounts: Sequence[Mount],
    socket: EnginePath,
    login: Login,
) -> AsyncIterator[Process]:
    """Until it has ended in order. EngineError where it does not take the login."""
    process = await host.start(site, words, {}, size, mounts=mounts)
    host.headroom.give(process.group, size.memory_bytes)
    host.limit_cpu(process, max(VCPU_MIN, size.vcpu))
    try:
        await _until_ready(process, socket, login)
        yield process
    finally:
        await process.stop(STOP_TIMEOUT_S)
        await asyncio.to_thread(host.forget, site)


async def _until_ready(process: Process, socket: EnginePath, login: Login) -> None:
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await client.can_log_in(socket, login.username, login.password):
                if not process.alive:
                    raise EngineError("the server does not start with this data")
                await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError as error:
        raise EngineError("the server does not accept logins") from error
