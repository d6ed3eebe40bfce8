"""Logins that may have been changed in the database: compared with what was set, and restored."""

import asyncio
import time

import structlog

from cell.engines.driver import EngineError, RestoresLogins
from cell.instances.hosted import HostedInstance
from cell.runtime import log_files
from cell.timestamps import moment

log = structlog.get_logger("cell.login_checks")

EVERY_S = 1.0
"""Anybody can fail to log in; what that costs an instance, and the cell, is bounded."""


async def check(instance: HostedInstance) -> None:
    """Returns once it was looked at; all who ask meanwhile wait for the same look."""
    if instance.checking is None or instance.checking.done():
        instance.checking = asyncio.create_task(_check(instance))
    await asyncio.shield(instance.checking)


async def _check(instance: HostedInstance) -> None:
    await asyncio.sleep(instance.checked_at + EVERY_S - time.monotonic())
    instance.checked_at = time.monotonic()
    await restore(instance)


async def restore(instance: HostedInstance) -> None:
    """At once, for what the cell itself does."""
    driver = instance.driver
    if not instance.usable or not isinstance(driver, RestoresLogins):
        return
    try:
        names = await driver.restore_logins(instance.site)
    except (EngineError, OSError) as error:
        log.warning("cell.not_restored", instance_id=instance.instance_id, reason=str(error))
        return
    if names:
        _tell(instance, names)


def _tell(instance: HostedInstance, names: list[str]) -> None:
    log.warning("cell.logins_restored", instance_id=instance.instance_id, logins=names)
    text = (
        f"the password of {', '.join(names)} was changed in the database and is now restored, "
        "as only credentials are valid (if you did not change it, look for triggers and functions)"
    )
    log_files.write(instance.site.log, f"{moment(time.time())} menagerie: {text}")
