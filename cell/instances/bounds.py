"""What is done with an instance while its engine does not run as usual: how long, and its end."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import structlog

from cell.engines.driver import EngineError
from cell.instances.residents import Resident
from cell.runtime import budget
from cell.runtime.host import FILE_BYTES_MIN, Host

log = structlog.get_logger("cell.bounds")

LOOK_EVERY_S = 1.0
# To look at all files takes a twentieth of the time at most.
LOOKING_SHARE = 20
END_EVERY_S = 0.5
# A copy of the data, and what is made of it.
COPIES = 2


@dataclass
class _Bound:
    """`reason` says why it was ended."""

    bytes_max: int
    within_s: float
    reason: str | None = None


@contextlib.asynccontextmanager
async def in_turn(
    resident: Resident, turn: AbstractAsyncContextManager[object]
) -> AsyncIterator[None]:
    """Whoever deletes the instance does not wait until there is a place."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(None) as resident.waits:
                await stack.enter_async_context(turn)
        except TimeoutError as error:
            raise EngineError(resident.why_work_ends() or "its turn did not come") from error
        finally:
            resident.waits = None
        yield


@contextlib.asynccontextmanager
async def bounded(
    host: Host, resident: Resident, work: str, bytes_max: int, within_s: float
) -> AsyncIterator[None]:
    """Ends what runs where it takes longer, or writes more than two copies of so many bytes."""
    bound = _Bound(bytes_max, within_s)

    def why() -> str | None:
        return bound.reason or resident.why_work_ends()

    with resident.at_work(work), budget.limit(bytes_max, ended=why):
        watch = asyncio.create_task(_watch(host, resident, bound))
        try:
            yield
        except Exception as error:
            if (reason := why()) is None:
                raise
            raise EngineError(reason) from error
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)


async def _watch(host: Host, resident: Resident, bound: _Bound) -> None:
    began = time.monotonic()
    directory = resident.site.directory
    before_bytes = await asyncio.to_thread(_taken_bytes, directory)
    while bound.reason is None:
        looked_at = time.monotonic()
        grown_bytes = await asyncio.to_thread(_taken_bytes, directory) - before_bytes
        now = time.monotonic()
        if grown_bytes > COPIES * bound.bytes_max:
            bound.reason = str(budget.exceeded(bound.bytes_max))
        elif now - began > bound.within_s:
            bound.reason = f"it took longer than {bound.within_s:.0f} s"
        else:
            await asyncio.sleep(max(LOOK_EVERY_S, LOOKING_SHARE * (now - looked_at)))
    log.warning("cell.work_ended", instance_id=resident.instance_id, reason=bound.reason)
    while True:
        await _end_processes(host, resident)
        await asyncio.sleep(END_EVERY_S)


@contextlib.asynccontextmanager
async def taken(host: Host, resident: Resident) -> AsyncIterator[None]:
    """Holds the lock of an instance that is to go; what is done with it is ended for that."""
    resident.leaving += 1
    ending = asyncio.create_task(_end_work(host, resident))
    try:
        await resident.lock.acquire()
    finally:
        resident.leaving -= 1
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
    try:
        yield
    finally:
        resident.lock.release()


async def _end_work(host: Host, resident: Resident) -> None:
    """An engine that its owner uses is left alone: it ends in order once this is the turn."""
    while True:
        if resident.waits is not None:
            resident.waits.reschedule(asyncio.get_running_loop().time())
        elif resident.work is not None and not resident.usable:
            await _end_processes(host, resident)
        await asyncio.sleep(END_EVERY_S)


async def _end_processes(host: Host, resident: Resident) -> None:
    """Only data that is copied, or read to be recovered, is in their hands."""
    for pid in await asyncio.to_thread(host.strays, resident.site):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _taken_bytes(directory: Path) -> int:
    """Of the disk; a file counts once by however many names."""
    found: dict[int, int] = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(f"{folder}/{name}")
                taken = max(status.st_size, status.st_blocks * 512, FILE_BYTES_MIN)
                found[status.st_ino] = taken
    return sum(found.values())
