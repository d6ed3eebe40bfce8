"""What archiving the changes of an engine takes, whatever the engine: chains without a gap."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from cell.backups.sealed_objects import DamagedError
from cell.backups.store import StoreError
from cell.backups.wal_store import WalStore
from cell.engines.driver import EngineError
from cell.instances.hosted import HostedInstance
from cell.instances.wal_chains import WalChain, WalChains
from cell.runtime.process import Process
from cell.settings import CellSettings
from specserver import Unavailable

log = structlog.get_logger("cell.wal")

SPOOL: Final = "wal"
FAILURES: Final = (EngineError, StoreError, DamagedError, OSError, Unavailable)


class GapError(Exception):
    """WAL was lost, or is given up; nothing of the chain after `until` can be restored."""

    def __init__(self, reason: str, until: float | None = None) -> None:
        super().__init__(reason)
        self.until = until


@dataclass(frozen=True)
class WalParts:
    """What all archivers of a cell have in common; `turns` bounds how many of them upload."""

    settings: CellSettings
    chains: WalChains
    store: WalStore
    turns: asyncio.Semaphore
    owner: Callable[[HostedInstance], int | None]


class ChainArchiver:
    """Archives what one run of an engine changes, until it has ended.

    Without a process: of an engine that ended when nobody could archive the rest.
    """

    def __init__(self, instance: HostedInstance, process: Process | None, parts: WalParts) -> None:
        self._instance = instance
        self.process = process
        self._parts = parts
        self._settings = parts.settings
        self.chain: WalChain | None = None
        # What is in the way, for the owner.
        self.reason: str | None = None
        self._checked_at = 0.0

    async def run(self) -> None:
        try:
            if self.process is None:
                self.chain = self._parts.chains.open(self._instance.instance_id)
            else:
                await self._follow(self.process)
            await self._finish()
        finally:
            await self._close()

    async def _follow(self, process: Process) -> None:
        """Until the engine has ended, or its WAL is not to be archived any more."""
        ended = asyncio.ensure_future(process.ended())
        try:
            while not ended.done():
                if not self._instance.record.spec.continuous_archiving:
                    await self._try(self._stop)
                    return
                await self._try(self._turn)
                await asyncio.wait({ended}, timeout=self._settings.wal_look_s)
        finally:
            ended.cancel()

    async def _try(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except GapError as gap:
            await self._give_up(gap)
        except FAILURES as error:
            reason = str(error)
            if reason != self.reason:
                self._log("cell.wal_not_archived", reason=reason)
            self.reason = reason
        else:
            self.reason = None

    async def _turn(self) -> None:
        """All that the engine has changed since the last one. Raises one of FAILURES, GapError."""
        raise NotImplementedError

    async def _close(self) -> None:
        """Whatever is held for reading ends."""
        raise NotImplementedError

    async def _release(self) -> None:
        """The engine holds nothing back any more, and what waits here is removed.

        Raises EngineError where it does not answer.
        """
        raise NotImplementedError

    async def _settle(self) -> None:
        """What the engine left when it ended."""
        raise NotImplementedError

    def _runs(self) -> bool:
        """Else it is being ended, and takes no logins."""
        return self._instance.process is self.process and self._instance.usable

    def _goes_on(self, chain: WalChain) -> None:
        """With a chain of a former run of the engine."""
        self.chain = chain
        if chain.is_settled and self.process is not None:
            # Nothing was written since it was ended.
            chain.newest_at = max(chain.newest_at or 0.0, self.process.started_at - 1.0)
        chain.is_settled = False
        self._parts.chains.save(chain)

    async def _put(self, chain: WalChain, name: str, content: bytes) -> None:
        async with self._parts.turns:
            await self._parts.store.put(chain.instance_id, chain.chain_id, name, content)

    async def _check_in_time(self, chain: WalChain) -> None:
        if time.monotonic() - self._checked_at > self._settings.wal_check_every_s:
            await self._check(chain)

    async def _check(self, chain: WalChain) -> None:
        """Whether the store has all that backups need; GapError with the first that it has not."""
        needed = self._parts.chains.first_needed(chain)
        found = await self._parts.store.names(chain.instance_id, chain.chain_id)
        self._checked_at = time.monotonic()
        for number in range(needed, chain.next_segment):
            if str(segment := chain.segment(number)) not in found:
                until = self._parts.chains.moment_before(chain, number)
                raise GapError(f"WAL segment {segment} is missing from the store", until)

    async def _give_up(self, gap: GapError) -> None:
        """The chain ends with what is archived of it; the next one begins in the next turn."""
        await self._close()
        with contextlib.suppress(EngineError):
            await self._release()
        if self.chain is not None:
            self._end(self.chain, gap)
        self.chain, self.reason = None, str(gap)

    def _end(self, chain: WalChain, gap: GapError) -> None:
        """One of which nothing was archived is none, and no other gap than the one before it."""
        self._log("cell.wal_gap", chain_id=chain.chain_id, reason=str(gap))
        if chain.newest_at is None:
            self._parts.chains.forget(chain)
        else:
            self._parts.chains.end(chain, str(gap), newest_at=gap.until)

    async def _stop(self) -> None:
        """Its owner does not want it any more; what is archived stays."""
        await self._close()
        chain = self.chain or self._parts.chains.open(self._instance.instance_id)
        await self._release()
        if chain is not None:
            self._parts.chains.end(chain, None)
        self.chain = None

    async def _finish(self) -> None:
        """The engine has ended."""
        while self.chain is not None and self._may_finish():
            await self._try(self._settle)
            if self.reason is None:
                return
            await asyncio.sleep(self._settings.wal_look_s)

    def _may_finish(self) -> bool:
        """Unless it runs again, which archives the rest as well, or is erased."""
        instance = self._instance
        return instance.process in (None, self.process) and instance.record.desired != "erased"

    def _settled(self, chain: WalChain, now: float) -> None:
        """Everything is archived, and nothing changes any more."""
        covered = chain.segment(chain.next_segment).begins + chain.partial_bytes
        chain.newest_at, chain.newest_position, chain.is_settled = now, covered, True
        self._parts.chains.save(chain)
        self._log("cell.wal_settled", chain_id=chain.chain_id)

    def _log(self, event: str, **more: object) -> None:
        log.info(event, instance_id=self._instance.instance_id, **more)


def spool_of(instance: HostedInstance) -> Path:
    return instance.site.directory / SPOOL
