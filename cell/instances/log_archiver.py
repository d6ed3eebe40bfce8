"""Archives the log files of one run of an engine, as it writes them.

What an engine has acknowledged is in its files: a moment can be restored once all is in the store
that was in them at it.
"""

import asyncio
import time
from typing import Final

from cell.engines import log_pieces
from cell.engines.wal_sources import LogPlace, LogSource, WalLook
from cell.instances.chain_archiver import ChainArchiver, WalParts, spool_of
from cell.instances.hosted import HostedInstance
from cell.instances.log_reader import LogCursor, LogPiece, LogReader
from cell.instances.wal_chains import WalChain, new_chain_id
from cell.runtime.process import Process

# Where nobody archives for so long, as without a cell, files go all the same; and where it has
# been turned off, after the other.
EXPIRES_S: Final = 6 * 3600
TURNED_OFF_S: Final = 60


class LogArchiver(ChainArchiver):
    def __init__(
        self, instance: HostedInstance, source: LogSource, process: Process | None, parts: WalParts
    ) -> None:
        super().__init__(instance, process, parts)
        self._source = source
        most = parts.settings.wal_spool_bytes_max
        self._reader = LogReader(instance.site, source, spool_of(instance), most)
        self._advanced_at = 0.0
        self._expires = False

    @property
    def _version(self) -> str:
        """Of whose data a chain is: a backup of another version is not continued by it."""
        spec = self._instance.record.spec
        return f"{spec.engine} {spec.engine_version}"

    async def _turn(self) -> None:
        if not self._runs():
            await self._archive()
            return
        if self.chain is None:
            self.chain = self._continued() or await self._begun()
        await self._archive()
        if not self._expires:
            await self._source.expire(self._instance.site, EXPIRES_S)
            self._expires = True
        await self._check_in_time(self.chain)

    def _continued(self) -> WalChain | None:
        chain = self._parts.chains.open(self._instance.instance_id)
        if chain is None:
            return None
        if chain.system_id != self._version:
            self._parts.chains.end(chain, None)
            return None
        if chain.is_settled:
            cursor = self._reader.after_rest(LogCursor.parse(chain.log_cursor))
            chain.log_cursor = str(cursor)
        self._goes_on(chain)
        return chain

    async def _begun(self) -> WalChain:
        """A new one; not while the store is away, or it would end before it was of any use."""
        instance, chain_id = self._instance, new_chain_id()
        await self._parts.store.names(instance.instance_id, chain_id)
        # From now on an erasure looks into the store.
        instance.has_backup_key = True
        place = await self._source.open(instance.site)
        look = WalLook(time.time(), 0, None, log_pieces.TIMELINE, self._version, None, None, 0)
        chain = self._parts.chains.begin(
            instance.instance_id, chain_id, look, str(LogCursor(place))
        )
        self._log("cell.wal_chain_begun", chain_id=chain_id)
        return chain

    async def _archive(self) -> None:
        """All that is in the files, and what comes meanwhile."""
        chain = self.chain
        if chain is None:
            return
        at, end = time.time(), await asyncio.to_thread(self._reader.end)
        has_changed = False
        while True:
            cursor = LogCursor.parse(chain.log_cursor)
            piece = await asyncio.to_thread(self._reader.piece, cursor, chain.partial_bytes)
            has_changed |= await self._archive_piece(chain, piece)
            reached = piece.after.place
            if not piece.is_whole:
                reached = LogPlace(reached.file, reached.offset + len(piece.content))
            is_all = end is not None and reached >= end
            if is_all:
                self._advance(chain, at, has_changed=has_changed)
            if not piece.is_whole:
                return
            if is_all:
                at, end = time.time(), await asyncio.to_thread(self._reader.end)

    async def _archive_piece(self, chain: WalChain, piece: LogPiece) -> bool:
        """Whether there was anything that the store did not have."""
        segment, content = chain.segment(chain.next_segment), piece.content
        packed = log_pieces.pack(piece.place, content)
        if not piece.is_whole:
            if len(content) > chain.partial_bytes:
                await self._put(chain, segment.partial, packed)
                self._parts.chains.fill(chain, len(content))
                return True
            return False
        if piece.is_to_be_put:
            await self._put(chain, str(segment), packed)
            chain.next_segment, chain.partial_bytes = segment.number + 1, 0
        # Only now: whoever is killed before reads it once more, which changes nothing.
        chain.log_cursor = str(piece.after)
        self._parts.chains.save(chain)
        if piece.is_to_be_put:
            await self._parts.store.remove(chain.instance_id, chain.chain_id, [segment.partial])
        if piece.after.place.file != piece.place.file and self._runs():
            await self._source.release(self._instance.site, piece.after.place.file)
        return piece.is_to_be_put

    def _advance(self, chain: WalChain, at: float, *, has_changed: bool) -> None:
        if has_changed or time.monotonic() - self._advanced_at > self._settings.wal_idle_look_s:
            self._advanced_at = time.monotonic()
            covered = chain.segment(chain.next_segment).begins + chain.partial_bytes
            self._parts.chains.advance(chain, at, covered)

    async def _settle(self) -> None:
        chain, now = self.chain, time.time()
        if chain is None or chain.ended_at is not None:
            return
        await self._archive()
        if not self._may_finish():
            return
        cursor = LogCursor.parse(chain.log_cursor)
        piece = await asyncio.to_thread(self._reader.piece, cursor, chain.partial_bytes)
        # Whole as it is: the file may be gone before anything more is in it.
        await self._archive_piece(chain, piece.closed())
        self._settled(chain, now)

    async def _release(self) -> None:
        site = self._instance.site
        await asyncio.to_thread(self._reader.clear)
        if self._runs() and (there := await asyncio.to_thread(self._source.files, site)):
            await self._source.release(site, max(there))
            await self._source.expire(site, TURNED_OFF_S)

    async def _close(self) -> None:
        await asyncio.to_thread(self._reader.close)
