"""How many engines start at a time: each has a slot for some seconds, then one among the slow."""

import asyncio
import time
from types import TracebackType
from typing import Self

from cell.instances.hosted import HostedInstance
from cell.instances.pools import Pools, owner_of
from cell.runtime.host import Host
from specserver.turns import Turns

# Longer than a start takes that has nothing to recover.
SLOT_S = 3.0
SLOW_VCPU = 1.0
LOOK_EVERY_S = 1.0
# So long it has the CPU before it is another's, and then again in its turn.
SLOW_FOR_S = 20.0


class StartSlot:
    """Waits for its tenant's turn. After `SLOT_S` the slot is another's.

    What starts on then has a CPU while it has a slot among the slow, for `SLOW_FOR_S` at a time
    where others wait; without one it has what its size has, as one that runs. So it takes nothing
    from others, however long it goes on.
    """

    def __init__(self, pools: Pools, host: Host, instance: HostedInstance) -> None:
        self._pools = pools
        self._host = host
        self._instance = instance
        self._held: Turns | None = None
        self._waits_since: float | None = None
        self._waited_s = 0.0
        self._share = owner_of(instance.record)

    async def __aenter__(self) -> Self:
        await self._pools.starts.enter(self._instance.record.tenant)
        self._held = self._pools.starts
        self._becoming_slow = asyncio.create_task(self._become_slow())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Without waiting for it: between a start and what is said of it comes nothing else.
        self._becoming_slow.cancel()
        self._leave()

    @property
    def waited_s(self) -> float:
        """How long it had no slot: that is not the engine's fault."""
        since = self._waits_since
        return self._waited_s + (0.0 if since is None else time.monotonic() - since)

    def limit_cpu(self) -> None:
        """Of the engine, where it runs by now, to what its slot allows."""
        process, vcpu = self._instance.process, self._instance.record.spec.size.vcpu
        if process is None or self._held is self._pools.starts:
            return
        slow = self._held is self._pools.slow_starts
        self._host.limit_cpu(process, max(SLOW_VCPU, vcpu) if slow else vcpu)

    async def _become_slow(self) -> None:
        await asyncio.sleep(SLOT_S)
        self._leave()
        while True:
            if not self._pools.slow_starts.try_enter(self._share):
                self._waits_since = time.monotonic()
                self.limit_cpu()
                await self._pools.slow_starts.enter(self._share)
                self._waited_s, self._waits_since = self.waited_s, None
            self._held = self._pools.slow_starts
            self.limit_cpu()
            await asyncio.sleep(SLOW_FOR_S)
            while not self._pools.slow_starts.is_wanted:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(LOOK_EVERY_S)
            self._leave()

    def _leave(self) -> None:
        if self._held is not None:
            is_slow = self._held is self._pools.slow_starts
            self._held.leave(self._share if is_slow else self._instance.record.tenant)
            self._held = None
