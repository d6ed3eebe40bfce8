"""Logins change while the data of an instance is copied: a credential ends when it is to end.

Whatever else is done with an instance, as its start or an upgrade, keeps them as they are.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from cell.instances.hosted import HostedInstance


@contextlib.asynccontextmanager
async def let_change(instance: HostedInstance) -> AsyncIterator[None]:
    """For who has the instance's lock, and leaves its engine to run meanwhile."""
    if not instance.usable:
        # It reads its logins when it starts.
        yield
        return
    instance.lets_logins_change.set()
    try:
        yield
    finally:
        instance.lets_logins_change.clear()
        # Until a change that has begun is through.
        async with instance.changing_logins:
            pass


@contextlib.asynccontextmanager
async def locked(instance: HostedInstance) -> AsyncIterator[None]:
    """Holds the instance's lock, or a part of it that who has it lets go."""
    while not await _has_lock(instance):
        async with instance.changing_logins:
            if instance.lets_logins_change.is_set():
                yield
                return
    try:
        yield
    finally:
        instance.lock.release()


async def _has_lock(instance: HostedInstance) -> bool:
    """Returns with the lock, or with False once who has it lets logins be changed."""
    lock = asyncio.create_task(instance.lock.acquire())
    chance = asyncio.create_task(instance.lets_logins_change.wait())
    try:
        await asyncio.wait({lock, chance}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        if not lock.cancel() and lock.exception() is None:
            instance.lock.release()
        raise
    finally:
        chance.cancel()
    if not lock.done():
        lock.cancel()
        await asyncio.gather(lock, return_exceptions=True)
    return not lock.cancelled()
