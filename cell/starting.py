"""Waits for an engine that was started: until a login works, or it is of no use any more."""

import asyncio
import time

from cell.engines.driver import EngineError, Loading, Login, why_not_started
from cell.residents import Resident
from cell.runtime.process import Process
from cell.settings import CellSettings

FIRST_LOOK_S = 0.005
LOOK_AGAIN_MAX_S = 0.05
# An instance says why it does not run within ten seconds, of which looking at it takes five.
SLOW_AFTER_S = 3.0
SLOW = (
    "the engine is taking a long time to start: it is running but accepts no logins yet; see the "
    "instance's logs"
)


async def until_usable(
    resident: Resident, process: Process, login: Login, settings: CellSettings
) -> None:
    """Raises EngineError where it ends, or accepts nobody for too long.

    One that says that it reads its data is waited for longer: ended and started again, it would
    have to begin anew, and never be done.
    """
    began = time.monotonic()
    wait_s = FIRST_LOOK_S
    while not await resident.driver.ready(resident.site, login):
        if not process.alive:
            await process.ended()
            why = why_not_started(resident.driver, resident.site, process)
            raise EngineError(f"the engine did not start: {why}")
        waited_s = time.monotonic() - began
        if waited_s > settings.start_timeout_s:
            await _look_whether_it_loads(resident, login, waited_s, settings)
        if resident.reason is None and waited_s > SLOW_AFTER_S:
            resident.reason = SLOW
        await asyncio.sleep(wait_s)
        wait_s = min(LOOK_AGAIN_MAX_S, wait_s * 1.2)


async def _look_whether_it_loads(
    resident: Resident, login: Login, waited_s: float, settings: CellSettings
) -> None:
    driver, limit_s = resident.driver, settings.start_timeout_s
    if isinstance(driver, Loading) and await driver.is_loading(resident.site):
        limit_s = settings.load_timeout_s
    # It may have finished between the two looks.
    if waited_s > limit_s and not await driver.ready(resident.site, login):
        raise EngineError(f"the engine accepted no login within {limit_s:.0f} s")
