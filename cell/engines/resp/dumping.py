"""Has a server write all that it holds to a dump, by a copy of its process."""

import asyncio
import time

from cell.engines.driver import EngineError
from cell.engines.resp.configuration import DUMP
from cell.engines.resp.connection import RespConnection
from cell.layout import Site
from cell.runtime import budget, engine_files
from cell.runtime.process import Process

LOOK_AGAIN_S = 0.05
# A dump that was put off begins within a tenth of a second of what it waited for.
BEGINS_S = 5.0


async def dump(connection: RespConnection, site: Site, process: Process) -> None:
    """Returns when it is there; EngineError where the server does not write it."""
    target = site.data / DUMP
    # The one before counts as going on for a moment after its dump is there.
    while await _is_dumping(connection):  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(LOOK_AGAIN_S)
    await asyncio.to_thread(engine_files.remove, target)
    # A rewrite of the log goes first where one runs.
    await connection.ask("BGSAVE", "SCHEDULE")
    busy_at = time.monotonic()
    while engine_files.find(target) is None:
        if not process.alive:
            raise ConnectionResetError("the engine exited meanwhile")
        # Whoever deletes the instance does not wait for it.
        budget.spend(0)
        now = await connection.info("persistence")
        if "1" in (now["rdb_bgsave_in_progress"], now["aof_rewrite_in_progress"]):
            busy_at = time.monotonic()
        elif time.monotonic() - busy_at > BEGINS_S:
            status = now["rdb_last_bgsave_status"]
            raise EngineError(f"the engine did not write its data (status {status})")
        await asyncio.sleep(LOOK_AGAIN_S)


async def _is_dumping(connection: RespConnection) -> bool:
    return (await connection.info("persistence"))["rdb_bgsave_in_progress"] == "1"
