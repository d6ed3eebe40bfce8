"""Waits for an engine that was started: until a login works, or it is of no use any more."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

import structlog

from cell.engines.driver import (
    EngineError,
    ExplainsSlowStarts,
    Login,
    ReportsLoading,
    RewritesLog,
    StartsWithoutCode,
    why_not_started,
)
from cell.instances import ceilings
from cell.instances.hosted import HostedInstance
from cell.instances.start_slots import StartSlot
from cell.runtime import log_files
from cell.runtime.folder_sizes import size_bytes
from cell.runtime.host import Host
from cell.runtime.process import Process
from cell.settings import CellSettings
from cell.specification import Size, Spec
from cell.timestamps import moment

log = structlog.get_logger("cell.starting")

FIRST_LOOK_S = 0.005
LOOK_AGAIN_MAX_S = 0.05
# An instance says why it does not run within ten seconds, of which looking at it takes five.
SLOW_AFTER_S = 3.0
SLOW = (
    "the engine is taking a long time to start: it is running but accepts no logins yet; see the "
    "instance's logs"
)

# Not every plan has a larger size, and every plan has backups.
MORE_MEMORY = (
    "choose a larger size (resize) if your plan has one, or restore a backup of when it needed less"
)
OUT_OF_MEMORY = (
    "the engine was stopped because it needs more memory to read its data back when it starts than "
    f"its size allows, even with the extra memory for a start; {MORE_MEMORY}"
)
NEEDS_MEMORY = f"the data of the engine needs more memory than its size has; {MORE_MEMORY}"
STARTED_ONCE_MORE = (
    "the engine is being started once more, because it did not give back the memory that it needed "
    "only to read its data"
)
# What was taken to recover is given back within moments.
GIVEN_BACK_WITHIN_S = 10.0
# What an engine that hangs uses, for its clocks, is a tenth of this share of a CPU.
BUSY_SHARE = 0.01
BUSY_WITHIN_S = 10.0


# Of an instance; once more at most where the second says so.
Start: TypeAlias = Callable[[HostedInstance, bool], Awaitable[None]]


class SlowError(EngineError):
    """It was still at work when its time was over."""


class HeldMemoryError(EngineError):
    """It has read its data, and keeps what it took for that; its next start takes less."""


class _Work:
    """Whether a process works: one that reads its data may say nothing to anybody meanwhile."""

    def __init__(self, process: Process, window_s: float) -> None:
        self._process = process
        self._window_s = min(BUSY_WITHIN_S, window_s)
        self._seen = (time.monotonic(), process.cpu_s)
        self.goes_on = False

    def look(self) -> None:
        now, (seen_at, seen_s) = time.monotonic(), self._seen
        if now - seen_at < self._window_s:
            return
        cpu_s = self._process.cpu_s
        self.goes_on = cpu_s - seen_s >= BUSY_SHARE * (now - seen_at)
        self._seen = (now, cpu_s)


async def launched(instance: HostedInstance, spec: Spec) -> Process:
    """Its engine, which may be starting yet; raises EngineError, also where it ended at once."""
    try:
        return await instance.driver.start(instance.site, spec)
    except OSError as error:
        raise EngineError(f"the engine cannot be started: {error}") from error


async def sparing(instance: HostedInstance, start: Start) -> str | None:
    """Without its owner's code where it does not start with it: then what its owner is told.

    What ended it may pass, so that it is tried once more with all there is; not so its slowness.
    """
    again = instance.failed or instance.failures > 1
    driver = instance.driver
    try:
        await _start(instance, start)
    except EngineError as error:
        if not isinstance(driver, StartsWithoutCode) or not (again or isinstance(error, SlowError)):
            raise
        if instance.leaving:
            raise  # it was ended for that
        if (put_back := await driver.leave_out(instance.site)) is None:
            raise
        reason = str(error)
    else:
        return None
    try:
        # Not with a log written anew: what was left out could not be put back.
        await start(instance, False)
    except BaseException:
        await asyncio.to_thread(put_back)
        raise
    told = f"started without {driver.code}, because it did not start with them"
    instance.explain(told)
    log_files.write(instance.site.log, f"{moment(time.time())} menagerie: {told}")
    log.warning("cell.started_without_code", instance_id=instance.instance_id, reason=reason)
    return told


async def _start(instance: HostedInstance, start: Start) -> None:
    """Once more where it takes less memory then."""
    try:
        await start(instance, True)
    except HeldMemoryError:
        if instance.leaving:
            raise  # it was ended for that
        await start(instance, False)


async def is_loading(instance: HostedInstance) -> bool:
    driver = instance.driver
    return isinstance(driver, ReportsLoading) and await driver.is_loading(instance.site)


async def until_loaded(instance: HostedInstance, process: Process, limit_s: float) -> None:
    """Of one that an earlier cell started: it cannot be told of credentials before."""
    deadline = time.monotonic() + limit_s
    while process.alive and await is_loading(instance):
        if time.monotonic() > deadline:
            raise EngineError(f"the engine was still reading its data after {limit_s:.0f} s")
        instance.explain(SLOW)
        await asyncio.sleep(LOOK_AGAIN_MAX_S)


async def until_usable(
    instance: HostedInstance,
    process: Process,
    login: Login,
    settings: CellSettings,
    slot: StartSlot | None = None,
) -> None:
    """Raises EngineError where it ends, or accepts nobody for too long.

    One that reads its data is waited for longer: ended and started again, it would have to begin
    anew, and never be done. How long it had no `slot` among those that start does not count.
    """
    began = time.monotonic()
    wait_s = FIRST_LOOK_S
    work = _Work(process, settings.start_timeout_s)
    while not await _is_ready(instance, login, settings.start_timeout_s):
        if not process.alive:
            await process.ended()
            why = why_not_started(instance.driver, instance.site, process)
            raise EngineError(f"the engine did not start: {why}")
        waited_s = time.monotonic() - began - (slot.waited_s if slot else 0.0)
        work.look()
        if waited_s > settings.start_timeout_s:
            await _look_whether_it_loads(instance, login, waited_s, settings, work)
        if instance.reason is None and waited_s > SLOW_AFTER_S:
            instance.explain(SLOW)
        await asyncio.sleep(wait_s)
        wait_s = min(LOOK_AGAIN_MAX_S, wait_s * 1.2)


async def _is_ready(instance: HostedInstance, login: Login, limit_s: float) -> bool:
    """What the engine is told of credentials first may be long work too."""
    asking = asyncio.ensure_future(instance.driver.ready(instance.site, login))
    try:
        done, _ = await asyncio.wait({asking}, timeout=SLOW_AFTER_S)
        if not done and instance.reason is None:
            instance.explain(SLOW)
        return await asyncio.wait_for(asking, limit_s)
    except TimeoutError:
        return False
    finally:
        asking.cancel()


async def _look_whether_it_loads(
    instance: HostedInstance, login: Login, waited_s: float, settings: CellSettings, work: _Work
) -> None:
    driver, limit_s, while_ = instance.driver, settings.start_timeout_s, ""
    if await is_loading(instance) or work.goes_on:
        limit_s = settings.load_timeout_s
        helps = driver.slow_start if isinstance(driver, ExplainsSlowStarts) else "restore a backup"
        while_ = f", and was still reading its data; {helps}"
    # It may have finished between the two looks.
    if waited_s > limit_s and not await _is_ready(instance, login, settings.start_timeout_s):
        failure = SlowError if while_ else EngineError
        raise failure(f"the engine accepted no login within {limit_s:.0f} s{while_}")


async def limit(host: Host, instance: HostedInstance, process: Process, *, once_more: bool) -> None:
    """What it has beyond its size while it starts ends, before anybody is let in.

    Raises EngineError where its data takes more memory than the size has: HeldMemoryError where
    it may be started `once_more`, and takes less then.
    """
    size = instance.record.spec.size
    deadline = time.monotonic() + GIVEN_BACK_WITHIN_S
    while not await _take_back(host, process, size):
        if not process.alive:
            raise EngineError(NEEDS_MEMORY)
        if time.monotonic() > deadline:
            if not (once_more and await _takes_less(instance, size)):
                raise EngineError(NEEDS_MEMORY)
            # It may have given it back meanwhile.
            if not await _take_back(host, process, size):
                raise HeldMemoryError(NEEDS_MEMORY)
            break
        await asyncio.sleep(LOOK_AGAIN_MAX_S)
    host.limit_cpu(process, size.vcpu)


async def _take_back(host: Host, process: Process, size: Size) -> bool:
    return await asyncio.to_thread(host.headroom.take_back, process.group, size.memory_bytes)


async def _takes_less(instance: HostedInstance, size: Size) -> bool:
    """Whether its next start does: most engines leave nothing to recover when they are stopped."""
    driver, site = instance.driver, instance.site
    instance.explain(STARTED_ONCE_MORE)
    log_files.write(site.log, f"{moment(time.time())} menagerie: {STARTED_ONCE_MORE}")
    log.warning("cell.memory_held", instance_id=instance.instance_id)
    if not isinstance(driver, RewritesLog):
        return True
    used_bytes = await asyncio.to_thread(size_bytes, site.data)
    room = replace(ceilings.room(instance), used_bytes=used_bytes)
    return await driver.rewrite_log(site, size, room)
