"""What is done with an instance while its engine does not run as usual: how long, and its end."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import structlog

from cell.engines.driver import EngineError
from cell.instances import login_turns
from cell.instances.hosted import HostedInstance
from cell.runtime import budget
from cell.runtime.folder_sizes import taken_bytes
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread

log = structlog.get_logger("cell.bounds")

LOOK_EVERY_S = 1.0
# To look at all files takes a twentieth of the time at most.
LOOKING_SHARE = 20
END_EVERY_S = 0.5
# A copy of the data, and what is made of it.
COPIES = 2


@dataclass
class _Bound:
    """`reason` says why it was ended; `before_bytes` is what lay there before."""

    bytes_max: int
    within_s: float
    before_bytes: int
    reason: str | None = None


@contextlib.asynccontextmanager
async def in_turn(
    instance: HostedInstance, turn: AbstractAsyncContextManager[object]
) -> AsyncIterator[None]:
    """Whoever deletes the instance does not wait until there is a place; with its lock held."""
    async with contextlib.AsyncExitStack() as stack:
        async with until_deleted(instance), login_turns.let_change(instance):
            await stack.enter_async_context(turn)
        yield


@contextlib.asynccontextmanager
async def in_turn_unlocked(
    instance: HostedInstance, turn: AbstractAsyncContextManager[object]
) -> AsyncIterator[None]:
    """The same without its lock: whoever waits so waits for nothing of a deletion's."""
    async with contextlib.AsyncExitStack() as stack:
        async with until_deleted(instance):
            await stack.enter_async_context(turn)
        yield


@contextlib.asynccontextmanager
async def until_deleted(instance: HostedInstance) -> AsyncIterator[None]:
    """What is waited for within is waited for no longer than that; EngineError says so then."""
    wait = None
    try:
        async with asyncio.timeout(None) as wait:
            instance.waits.add(wait)
            yield
    except TimeoutError as error:
        raise EngineError("the instance is being deleted") from error
    finally:
        instance.waits.discard(wait)


@contextlib.asynccontextmanager
async def bounded(
    host: Host, instance: HostedInstance, work: str, bytes_max: int, within_s: float
) -> AsyncIterator[None]:
    """Ends what runs where it takes longer, or writes more than two copies of so many bytes."""
    # Before anything is written, however quickly.
    before_bytes = await in_own_thread(taken_bytes, instance.site.directory)
    bound = _Bound(bytes_max, within_s, before_bytes)

    def why() -> str | None:
        return bound.reason or instance.why_work_ends()

    with instance.at_work(work), budget.limit(bytes_max, ended=why):
        watch = asyncio.create_task(_watch(host, instance, bound))
        try:
            yield
        except Exception as error:
            if (reason := why()) is None:
                raise
            raise EngineError(reason) from error
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)


async def _watch(host: Host, instance: HostedInstance, bound: _Bound) -> None:
    began = time.monotonic()
    directory = instance.site.directory
    while bound.reason is None:
        looked_at = time.monotonic()
        grown_bytes = await in_own_thread(taken_bytes, directory) - bound.before_bytes
        now = time.monotonic()
        if grown_bytes > COPIES * bound.bytes_max:
            bound.reason = str(budget.exceeded(bound.bytes_max))
        elif now - began > bound.within_s:
            bound.reason = f"it took longer than {bound.within_s:.0f} s"
        else:
            await asyncio.sleep(max(LOOK_EVERY_S, LOOKING_SHARE * (now - looked_at)))
    log.warning("cell.work_ended", instance_id=instance.instance_id, reason=bound.reason)
    while True:
        await _end_processes(host, instance)
        await asyncio.sleep(END_EVERY_S)


@contextlib.asynccontextmanager
async def locked_to_remove(host: Host, instance: HostedInstance) -> AsyncIterator[None]:
    """Holds the lock of an instance that is to go; what is done with it is ended for that."""
    instance.leaving += 1
    _end_waits(instance)
    ending = asyncio.create_task(_end_work(host, instance))
    try:
        await instance.lock.acquire()
    finally:
        instance.leaving -= 1
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
    try:
        yield
    finally:
        instance.lock.release()


def _end_waits(instance: HostedInstance) -> None:
    for wait in instance.waits:
        wait.reschedule(asyncio.get_running_loop().time())


async def _end_work(host: Host, instance: HostedInstance) -> None:
    """An engine that its owner uses is left alone: it ends in order once this is the turn."""
    while True:
        _end_waits(instance)
        if instance.work is not None and not instance.usable:
            await _end_processes(host, instance)
        await asyncio.sleep(END_EVERY_S)


async def _end_processes(host: Host, instance: HostedInstance) -> None:
    """Only data that is copied, or read to be recovered, is in their hands."""
    for pid in await asyncio.to_thread(host.strays, instance.site):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
