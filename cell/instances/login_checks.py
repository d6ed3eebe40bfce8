"""Logins that the gateway doubts: compared with what they were made as, and put back."""

import asyncio
import time

import structlog

from cell.engines.driver import EngineError, Proving
from cell.instances.residents import Resident
from cell.runtime import log_files
from cell.timestamps import moment

log = structlog.get_logger("cell.doubted")

EVERY_S = 1.0
"""Anybody can fail to log in; what that costs an instance, and the cell, is bounded."""


async def check(resident: Resident) -> None:
    """Returns once it was looked at; all who ask meanwhile wait for the same look."""
    if resident.checking is None or resident.checking.done():
        resident.checking = asyncio.create_task(_check(resident))
    await asyncio.shield(resident.checking)


async def _check(resident: Resident) -> None:
    await asyncio.sleep(resident.checked_at + EVERY_S - time.monotonic())
    resident.checked_at = time.monotonic()
    driver = resident.driver
    if not resident.usable or not isinstance(driver, Proving):
        return
    try:
        names = await driver.restore_logins(resident.site)
    except (EngineError, OSError) as error:
        log.warning("cell.not_restored", instance_id=resident.instance_id, reason=str(error))
        return
    if names:
        _tell(resident, names)


def _tell(resident: Resident, names: list[str]) -> None:
    log.warning("cell.logins_restored", instance_id=resident.instance_id, logins=names)
    text = (
        f"the password of {', '.join(names)} was changed in the database, and is restored now: "
        "only credentials are valid (if it was not you, look for triggers and functions that do)"
    )
    log_files.write(resident.site.log, f"{moment(time.time())} menagerie: {text}")
