"""The log written anew: for a copy of its base, or before anybody is let in.

A transaction is held in memory as a whole when it is read. Where the server's allocator does not
give that back, it would need it at each start until the log is short.
"""

import asyncio
import time

from cell.engines.driver import EngineError, Room
from cell.engines.resp import append_only
from cell.engines.resp.connection import RefusalError, RespConnection
from cell.engines.resp.dumping import BEGINS_S
from cell.engines.resp.storage import LogState
from cell.layout import Site
from cell.runtime import budget
from cell.runtime.engine_files import EnginePath
from cell.runtime.process import Process
from cell.specification import Size

LOOK_AGAIN_S = 0.05
NO_ROOM = (
    "the engine's log must be written anew before it can be read with the memory of the size, and "
    "there is no room for that; choose more storage or a larger size (resize), or restore an "
    "earlier backup"
)


async def base_anew(
    connection: RespConnection, site: Site, process: Process
) -> tuple[EnginePath, int]:
    """All that the server holds now, in a new base; and the number of the file that goes on.

    EngineError where it is not written.
    """
    while True:
        while await _is_rewritten(connection, process):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(LOOK_AGAIN_S)
        former = append_only.base(site)
        try:
            await connection.ask("BGREWRITEAOF")
        except RefusalError as error:
            if "progress" not in str(error):
                raise
        else:
            break
    busy_at = time.monotonic()
    while (base := append_only.base(site)) in (former, None):
        if await _is_rewritten(connection, process):
            busy_at = time.monotonic()
        elif time.monotonic() - busy_at > BEGINS_S:
            status = (await connection.info("persistence"))["aof_last_bgrewrite_status"]
            raise EngineError(f"the engine did not write its data (status {status})")
        await asyncio.sleep(LOOK_AGAIN_S)
    assert base is not None
    return base, min(append_only.increments(site))


async def _is_rewritten(connection: RespConnection, process: Process) -> bool:
    if not process.alive:
        raise ConnectionResetError("the engine exited meanwhile")
    # Whoever deletes the instance does not wait for it.
    budget.spend(0)
    told = await connection.info("persistence")
    return "1" in (told["aof_rewrite_in_progress"], told["aof_rewrite_scheduled"])


async def rewrite(connection: RespConnection, size: Size, room: Room) -> bool:
    before = await LogState.of(connection)
    if before.grown_bytes <= 0 or before.data_bytes > size.memory_bytes:
        return False
    if not before.fits(room):
        raise EngineError(NO_ROOM)
    await connection.ask("BGREWRITEAOF")
    while True:
        await asyncio.sleep(LOOK_AGAIN_S)
        now = await LogState.of(connection)
        if now.rewrites > before.rewrites and not now.is_rewritten:
            break
    if now.grown_bytes >= before.grown_bytes:
        raise EngineError("the engine did not write its log anew; see the instance's logs")
    return True
