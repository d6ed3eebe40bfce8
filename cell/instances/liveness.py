"""Notices an engine that answers nobody, or not the cell, and ends it so that it starts again."""

import signal
import time
from collections.abc import Sequence

import structlog

from cell.engines.driver import Login, Pulse
from cell.instances import login_checks
from cell.instances.residents import Resident
from cell.settings import CellSettings

log = structlog.get_logger("cell.liveness")

WELL = {Pulse.WELL, Pulse.CHANGED}


def is_due(resident: Resident, settings: CellSettings) -> bool:
    """Now and then, and at each chance where it was not well; never while it is worked on."""
    if not resident.usable or resident.process is None or resident.lock.locked():
        return False
    if resident.look is not None and not resident.look.done():
        return False
    wait_s = settings.pulse_every_s if resident.unwell_since is None else 0.0
    return time.monotonic() - resident.looked_at >= wait_s


async def tell(resident: Resident, logins: Sequence[Login]) -> None:
    """Makes these what the engine accepts; within the instance's lock."""
    reason = await resident.driver.set_credentials(resident.site, logins)
    if reason is not None:
        # Told with the lock: who watches the process waits for it before saying why it ended.
        resident.expect_end(reason)
        log.warning("cell.engine_cut", instance_id=resident.instance_id, reason=reason)


async def look(resident: Resident, login: Login, settings: CellSettings) -> None:
    process, began = resident.process, time.monotonic()
    if process is None:
        return
    pulse = await resident.driver.pulse(resident.site, login)
    resident.looked_at = now = time.monotonic()
    if pulse is Pulse.CHANGED:
        await login_checks.check(resident)
    if pulse in WELL or resident.lock.locked() or resident.process is not process:
        # Held still for a copy, it answers nobody either.
        resident.unwell_since = None
        return
    if resident.unwell_since is None:
        resident.unwell_since = began
    limit_s = settings.stuck_after_s if pulse is Pulse.STUCK else settings.silent_after_s
    unwell_s = now - resident.unwell_since
    if unwell_s < limit_s:
        return
    resident.unwell_since = None
    reason = f"{pulse.value} (for {unwell_s:.0f} s)"
    resident.expect_end(reason)
    log.warning("cell.engine_cut", instance_id=resident.instance_id, reason=reason)
    # Asked to end, it would not answer that either. What it acknowledged is written.
    process.signal(signal.SIGKILL)
