"""The log written anew before anybody is let in: the next start reads it with less memory.

A transaction is held in memory as a whole when it is read. Where the server's allocator does not
give that back, it would need it at each start until the log is short.
"""

import asyncio

from cell.engines.driver import EngineError, Room
from cell.engines.resp.connection import RespConnection
from cell.engines.resp.storage import LogState
from cell.specification import Size

LOOK_AGAIN_S = 0.05
NO_ROOM = (
    "the engine's log must be written anew before it can be read with the memory of the size, and "
    "there is no room for that; choose more storage or a larger size (resize), or restore an "
    "earlier backup"
)


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
