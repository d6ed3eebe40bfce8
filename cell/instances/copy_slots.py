"""How many copies begin at a time: each has a place for some seconds, then goes on without it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from cell.instances.hosted import HostedInstance
from cell.instances.pools import CopyLimits, owner_of
from cell.runtime import pace, priority
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread
from cell.runtime.pace import Pace

# Longer than a copy takes of what a small size holds.
SLOT_S = 10.0
LOOK_EVERY_S = 5.0


class CopySlot:
    """Waits for its owner's turn. After `SLOT_S` the place is another's.

    What goes on then counts among all that are under way, so that its owner has no more of them
    than places. It gives way: in the cell it keeps to the pace of the slow, and its tools have a
    low priority. So whoever comes next waits for seconds, however long it goes on.
    """

    def __init__(self, places: CopyLimits, host: Host, instance: HostedInstance) -> None:
        self._places = places
        self._host = host
        self._instance = instance
        self._share = owner_of(instance.record)
        self._pace: Pace | None = None
        self._has_place = False
        self._becoming_slow: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.leave()

    def try_enter(self) -> bool:
        """True also where it has a place already."""
        if self._pace is not None:
            return True
        if not self._places.in_progress.try_enter(self._share):
            return False
        if not self._places.beginning.try_enter(self._share):
            self._places.in_progress.leave(self._share)
            return False
        self._begin()
        return True

    async def enter(self) -> None:
        """At once where it has a place already."""
        if self._pace is not None:
            return
        await self._places.in_progress.enter(self._share)
        try:
            await self._places.beginning.enter(self._share)
        except BaseException:
            self._places.in_progress.leave(self._share)
            raise
        self._begin()

    async def leave(self) -> None:
        if self._pace is None or self._becoming_slow is None:
            return
        self._pace.end()
        self._pace = None
        pace.keep(None)
        self._becoming_slow.cancel()
        self._leave_place()
        self._places.in_progress.leave(self._share)
        # An engine that starts next is none of the tools.
        await asyncio.gather(self._becoming_slow, return_exceptions=True)

    def _begin(self) -> None:
        self._has_place = True
        self._pace = Pace()
        pace.keep(self._pace)
        self._becoming_slow = asyncio.create_task(self._become_slow(self._pace))

    def _leave_place(self) -> None:
        if self._has_place:
            self._has_place = False
            self._places.beginning.leave(self._share)

    async def _become_slow(self, own: Pace) -> None:
        await asyncio.sleep(SLOT_S)
        own.slow = True
        self._leave_place()
        while True:
            looking = asyncio.ensure_future(in_own_thread(self._lower_priority))
            try:
                await asyncio.shield(looking)
            except asyncio.CancelledError:
                await looking
                raise
            await asyncio.sleep(LOOK_EVERY_S)

    def _lower_priority(self) -> None:
        """Of what works on the instance outside of its engine, whose size limits it."""
        engine = self._instance.process
        own = set(engine.tree()) if engine is not None else set()
        priority.lower(set(self._host.strays(self._instance.site)) - own)


@contextlib.asynccontextmanager
async def locked_in_turn(
    instance: HostedInstance,
    slot: CopySlot,
    waiting: Callable[[], AbstractAsyncContextManager[None]] = contextlib.nullcontext,
) -> AsyncIterator[None]:
    """Holds the instance's lock and a place, and waits for neither while it has the other.

    Meanwhile the instance may be deleted, and an engine that ends is started again. The place is
    waited for within `waiting`.
    """
    try:
        while True:
            async with instance.lock:
                if slot.try_enter():
                    try:
                        yield
                    finally:
                        await slot.leave()
                    return
            async with waiting():
                await slot.enter()
            if instance.lock.locked():
                await slot.leave()
    finally:
        await slot.leave()  # broken off between the two
