"""What an engine's driver does beside an engine that runs."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from cell.engines.driver import Finishing, Flushing
from cell.instances.residents import Resident
from cell.runtime.process import Process

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


def flush(resident: Resident, spawn: Spawn) -> None:
    """One at a time: a slow disk must not pile them up."""
    driver, former = resident.driver, resident.flush
    if isinstance(driver, Flushing) and resident.process and (former is None or former.done()):
        resident.flush = spawn(driver.flush(resident.site))


async def until_ended(resident: Resident, process: Process, spawn: Spawn) -> None:
    """What an upgrade left to do is done meanwhile, under the limits of the engine's size."""
    driver = resident.driver
    work = spawn(driver.finish(resident.site)) if isinstance(driver, Finishing) else None
    try:
        await process.ended()
    finally:
        if work is not None:
            work.cancel()
