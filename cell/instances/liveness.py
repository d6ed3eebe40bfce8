"""Notices an engine that answers nobody, or not the cell, and ends it so that it starts again."""

import signal
import time
from collections.abc import Sequence

import structlog

from cell.engines.driver import Health, Login
from cell.instances import login_checks
from cell.instances.hosted import HostedInstance
from cell.settings import CellSettings

log = structlog.get_logger("cell.liveness")

WELL = {Health.WELL, Health.CHANGED}


def is_due(instance: HostedInstance, settings: CellSettings) -> bool:
    """Now and then, and at each chance where it was not well; never while it is worked on."""
    if not instance.usable or instance.process is None or instance.lock.locked():
        return False
    if instance.look is not None and not instance.look.done():
        return False
    wait_s = settings.health_every_s if instance.unwell_since is None else 0.0
    return time.monotonic() - instance.looked_at >= wait_s


async def set_credentials(instance: HostedInstance, logins: Sequence[Login]) -> None:
    """Makes these what the engine accepts; within the instance's lock."""
    reason = await instance.driver.set_credentials(instance.site, logins)
    if reason is not None:
        # Told with the lock: who watches the process waits for it before saying why it ended.
        instance.expect_end(reason)
        log.warning("cell.engine_cut", instance_id=instance.instance_id, reason=reason)


async def check(instance: HostedInstance, login: Login, settings: CellSettings) -> None:
    process, began = instance.process, time.monotonic()
    if process is None:
        return
    health = await instance.driver.health(instance.site, login)
    instance.looked_at = now = time.monotonic()
    if health is Health.CHANGED:
        await login_checks.check(instance)
    if health in WELL or instance.process is not process or process.is_held_still:
        # Held still for a copy, it answers nobody either.
        instance.unwell_since = None
        return
    # Who has the lock by now, as a copy that begins again and again, waits for it in vain as well.
    if instance.unwell_since is None:
        instance.unwell_since = began
    limit_s = settings.stuck_after_s if health is Health.STUCK else settings.silent_after_s
    unwell_s = now - instance.unwell_since
    if unwell_s < limit_s:
        return
    instance.unwell_since = None
    reason = f"{health.value} (for {unwell_s:.0f} s)"
    instance.expect_end(reason)
    log.warning("cell.engine_cut", instance_id=instance.instance_id, reason=reason)
    # Asked to end, it would not answer that either. What it acknowledged is written.
    process.signal(signal.SIGKILL)
