"""What an engine's driver does beside an engine that runs."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from cell.engines.driver import FinishesUpgrades, FlushesWrites, HoldsWrites
from cell.instances import ceilings
from cell.instances.hosted import HostedInstance
from cell.runtime.process import Process

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


def flush(instance: HostedInstance, spawn: Spawn) -> None:
    """One at a time: a slow disk must not pile them up."""
    driver, former = instance.driver, instance.flush
    if isinstance(driver, FlushesWrites) and instance.process and (former is None or former.done()):
        instance.flush = spawn(driver.flush(instance.site))


def hold_writes(instance: HostedInstance, spawn: Spawn) -> None:
    """With what was measured just now."""
    driver, former = instance.driver, instance.holding
    if isinstance(driver, HoldsWrites) and instance.usable and (former is None or former.done()):
        instance.holding = spawn(driver.hold_writes(instance.site, ceilings.room(instance)))


async def until_ended(instance: HostedInstance, process: Process, spawn: Spawn) -> None:
    """What an upgrade left to do is done meanwhile, under the limits of the engine's size."""
    driver = instance.driver
    work = spawn(driver.finish(instance.site)) if isinstance(driver, FinishesUpgrades) else None
    try:
        await process.ended()
    finally:
        if work is not None:
            work.cancel()
