"""Archives the WAL of one run of an engine: into a spool beside its data, and from there the store.

What is certain is what counts: a moment can be restored once the server has said at it how far its
WAL goes, and all of that is in the store.
"""

import asyncio
import time

from cell.engines.wal_sources import WalLook, WalSource
from cell.instances.chain_archiver import ChainArchiver, GapError, WalParts, spool_of
from cell.instances.hosted import HostedInstance
from cell.instances.wal_chains import WalChain, new_chain_id, slot_of
from cell.instances.wal_spool import WalSpool
from cell.runtime.attendants import Attendant
from cell.runtime.process import Process

# What receives it goes on until the engine has ended, and then has this long.
FLUSH_WITHIN_S = 10.0
# Of an instance's storage, so much may be held back in its server at most: a tenth.
HELD_SHARE = 10
# Moments that wait to be archived; a few suffice, since each holds for those before it.
PENDING_MAX = 30


class WalArchiver(ChainArchiver):
    def __init__(
        self, instance: HostedInstance, source: WalSource, process: Process | None, parts: WalParts
    ) -> None:
        super().__init__(instance, process, parts)
        self._source = source
        self.spool = WalSpool(spool_of(instance))
        self._receiver: Attendant | None = None
        self._pending: list[tuple[float, int]] = []
        self._looked_at = 0.0

    async def _turn(self) -> None:
        if not self._runs():
            await self._upload()
            return
        if self.chain is None:
            self.chain = await self._continued() or await self._begun()
        if self._receiver is None or not self._receiver.alive:
            await self._close()
            await asyncio.to_thread(self.spool.make, self._parts.owner(self._instance))
            given = (self._instance.site, self.chain.slot, self.spool.folder)
            self._receiver = await self._source.receive(*given)
        idle_s = time.monotonic() - self._looked_at
        changed = await asyncio.to_thread(self.spool.has_changed)
        if changed or self._pending or idle_s > self._settings.wal_idle_look_s:
            await self._look(self.chain)
        await self._check_in_time(self.chain)

    async def _continued(self) -> WalChain | None:
        """The chain that there is, if it is of this data; GapError where it cannot go on."""
        chain = self._parts.chains.open(self._instance.instance_id)
        if chain is None:
            return None
        look = await self._source.look(self._instance.site, chain.slot)
        if (look.timeline, look.system_id) != (chain.timeline, chain.system_id):
            # Other data took the place of the former, as by an upgrade.
            self._parts.chains.end(chain, None)
            return None
        self.chain = chain
        self._refuse_lost(look)
        self._goes_on(chain)
        return chain

    async def _begun(self) -> WalChain:
        """A new one; not while the store is away, or it would end before it was of any use."""
        instance, chain_id = self._instance, new_chain_id()
        await self._parts.store.names(instance.instance_id, chain_id)
        await asyncio.to_thread(self.spool.clear)
        # From now on an erasure looks into the store.
        instance.has_backup_key = True
        look = await self._source.open(instance.site, slot_of(chain_id))
        chain = self._parts.chains.begin(instance.instance_id, chain_id, look)
        self._log("cell.wal_chain_begun", chain_id=chain_id)
        return chain

    async def _look(self, chain: WalChain) -> None:
        look = await self._source.look(self._instance.site, chain.slot)
        self._refuse_lost(look)
        self._looked_at = time.monotonic()
        self._pending = [*self._pending[-PENDING_MAX:], (look.at, look.written)]
        await self._upload()
        reached = self._reached(chain, look)
        archived = [each for each in self._pending if each[1] <= reached]
        if archived:
            self._pending = [each for each in self._pending if each[1] > reached]
            self._parts.chains.advance(chain, *archived[-1])

    @staticmethod
    def _reached(chain: WalChain, look: WalLook) -> int:
        """The position before which everything is in the store.

        Files are written in their order, so it is at least the end of what is in the last one: of
        a server that goes on writing, what it had written when it was looked at. Of another, what
        has been received by then is, as all files were looked at since.
        """
        segment = chain.segment(chain.next_segment)
        received = look.received or 0
        known = received if received <= segment.ends else 0
        return max(known, segment.begins + chain.partial_bytes)

    def _refuse_lost(self, look: WalLook) -> None:
        if look.slot in (None, "lost"):
            raise GapError("the server has removed WAL that was not archived yet")
        # This counts as the instance's storage.
        storage = self._instance.record.spec.size.storage_bytes
        held = look.held_bytes
        most = min(self._settings.wal_spool_bytes_max, storage // HELD_SHARE)
        if held > most + self.spool.size_bytes:
            raise GapError(f"more than {most // 2**20} MiB of WAL waited in the server")

    async def _upload(self) -> None:
        """All that is in the spool."""
        chain = self.chain
        if chain is None:
            return
        if self.spool.size_bytes > self._settings.wal_spool_bytes_max:
            most = self._settings.wal_spool_bytes_max // 2**20
            raise GapError(f"more than {most} MiB of WAL waited for the store of backups")
        async for name, segment, content in self.spool.contents():
            if segment is None:
                await self._put(chain, name, content)
                continue
            if segment.timeline != chain.timeline or segment.number > chain.next_segment:
                missing = chain.segment(chain.next_segment)
                raise GapError(f"WAL segment {missing} was not received")
            if name == segment.partial:
                await self._put_partial(chain, name, segment.number, content)
                continue
            await self._put(chain, name, content)
            if segment.number == chain.next_segment:
                chain.next_segment, chain.partial_bytes = segment.number + 1, 0
                self._parts.chains.save(chain)
            await asyncio.to_thread(self.spool.drop, name)
            await self._parts.store.remove(chain.instance_id, chain.chain_id, [segment.partial])

    async def _put_partial(self, chain: WalChain, name: str, number: int, content: bytes) -> None:
        """Not of a segment that is archived whole, and received once more after a pause."""
        if number == chain.next_segment:
            await self._put(chain, name, content)
            self._parts.chains.fill(chain, len(content))

    async def _put(self, chain: WalChain, name: str, content: bytes) -> None:
        await super()._put(chain, name, content)
        self.spool.was_put(name)

    async def _release(self) -> None:
        self._pending = []
        try:
            await self._source.close(self._instance.site)
        finally:
            await asyncio.to_thread(self.spool.clear)

    async def _finish(self) -> None:
        """What received its WAL ends with it, having got all of it."""
        if self._receiver is not None:
            await self._receiver.ended(FLUSH_WITHIN_S)
            await self._close()
        await super()._finish()

    async def _settle(self) -> None:
        chain, now = self.chain, time.time()
        if chain is None or chain.ended_at is not None:
            return
        await self._upload()
        covered = chain.segment(chain.next_segment).begins + chain.partial_bytes
        left_at = await asyncio.to_thread(self._source.left_at, self._instance.site)
        if left_at is not None and left_at < covered and self._may_finish():
            self._settled(chain, now)

    async def _close(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            await receiver.end()
