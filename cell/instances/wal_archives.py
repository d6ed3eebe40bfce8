"""The archived WAL of a cell's instances: kept going, told of, and given back for a restore."""

import asyncio
import math
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import structlog

from cell.backups.manifest import WalStart
from cell.backups.store import StoreError
from cell.backups.wal_names import Segment
from cell.engines.wal_sources import ArchivesWal, LogSource, WalNeed, WalSource
from cell.instances.chain_archiver import ChainArchiver, WalParts, spool_of
from cell.instances.hosted import HostedInstance
from cell.instances.log_archiver import LogArchiver
from cell.instances.reasons import for_owner
from cell.instances.supervisor import Supervisor
from cell.instances.wal_archiver import WalArchiver
from cell.instances.wal_chains import WalChain, is_at_rest
from cell.instances.wal_recoveries import WalRecoveries
from cell.runtime import engine_files
from cell.runtime.process import Process
from cell.settings import CellSettings
from cell.timestamps import moment

log = structlog.get_logger("cell.wal")

WAIT_S = 20.0
"""What an engine left behind when it ended is archived within, unless the store is away."""

LOST_DATA = "the data was lost with its machine"

RANGES_MAX = 1000
# Each has a segment in memory, and what it is compressed to.
UPLOADS_AT_ONCE = 3


class WalArchives:
    def __init__(
        self, settings: CellSettings, supervisor: Supervisor, recoveries: WalRecoveries
    ) -> None:
        self._supervisor = supervisor
        self._chains = recoveries.chains
        self._parts = WalParts(
            *(settings, recoveries.chains, recoveries.store),
            asyncio.Semaphore(UPLOADS_AT_ONCE),
            lambda instance: supervisor.host.owner(instance.site),
        )
        self._running: dict[str, tuple[ChainArchiver, asyncio.Task[None]]] = {}

    def tick(self) -> None:
        """Begins to archive what runs, and what ended before it could be."""
        for instance in list(self._supervisor.instances.values()):
            driver = instance.driver
            if not isinstance(driver, ArchivesWal):
                continue
            instance.archiving = partial(self._observation, instance)
            if self._is_due(instance):
                process = instance.process
                made = self._archiver(instance, driver.wal, process)
                task = self._supervisor.spawn(made.run())
                self._running[instance.instance_id] = made, task

    def _archiver(
        self, instance: HostedInstance, source: WalSource | LogSource, process: Process | None
    ) -> ChainArchiver:
        if isinstance(source, LogSource):
            return LogArchiver(instance, source, process, self._parts)
        return WalArchiver(instance, source, process, self._parts)

    def _is_due(self, instance: HostedInstance) -> bool:
        if (
            instance.restore is not None
            or instance.is_replaced
            or instance.record.desired == "erased"
        ):
            return False
        former = self._running.get(instance.instance_id)
        if former is not None and not former[1].done():
            return False
        if instance.process is not None:
            return instance.usable and self._concerns(instance)
        if former is not None and former[0].process is None:
            # What could not be archived then cannot be now.
            return False
        chain = self._chains.open(instance.instance_id)
        return chain is not None and not chain.is_settled

    def _concerns(self, instance: HostedInstance) -> bool:
        wanted = instance.record.spec.continuous_archiving
        return wanted or self._chains.open(instance.instance_id) is not None

    async def settle(self, instance: HostedInstance) -> None:
        """Of an engine that has ended: returns once the rest is archived, or cannot be now."""
        found = self._running.get(instance.instance_id)
        if found is not None:
            await asyncio.wait({found[1]}, timeout=WAIT_S)
            found[1].cancel()
            await asyncio.gather(found[1], return_exceptions=True)

    def replaced(self, instance: HostedInstance) -> None:
        """Other data took the place of what the chain is of; its last moment is now."""
        chain = self._chains.open(instance.instance_id)
        if chain is not None:
            self._chains.end(chain, None, newest_at=time.time() if chain.is_settled else None)
            engine_files.remove(spool_of(instance))

    def lost(self, instance_id: str) -> None:
        """With the data, the end of its chain: what the cell knows of it may be old, and not now.

        The moments until then can be restored as before.
        """
        chain = self._chains.open(instance_id)
        if chain is not None and chain.newest_at is None:
            self._chains.forget(chain)
        elif chain is not None:
            self._chains.end(chain, LOST_DATA)

    def _observation(self, instance: HostedInstance) -> dict[str, Any]:
        chains = self._chains.of(instance.instance_id)
        open_ = next((each for each in chains if each.ended_at is None), None)
        gaps = [each for each in chains if each.gap is not None]
        newest_at = None if open_ is None else self._newest(instance, open_)
        has_base = open_ is not None and any(
            base.chain_id == open_.chain_id for base in self._chains.bases(instance.instance_id)
        )
        reason = self._reason(instance)
        return {
            "wanted": instance.record.spec.continuous_archiving,
            "status": self._status(instance, open_, newest_at),
            "reason": None if reason is None else for_owner(reason),
            "newest_at": moment(newest_at),
            "needs_base": open_ is not None and not has_base,
            "gap": _gap(gaps[-1]) if gaps else None,
            "ranges": [
                {"begins_at": moment(begins), "ends_at": moment(ends)}
                for begins, ends in self.ranges(instance)[-RANGES_MAX:]
            ],
        }

    def _status(
        self, instance: HostedInstance, chain: WalChain | None, newest_at: float | None
    ) -> str:
        if not instance.record.spec.continuous_archiving:
            return "off"
        since = newest_at or (chain.began_at if chain else instance.awake_since)
        if not instance.usable and (chain is None or chain.is_settled):
            return "waiting" if chain is None else "archiving"
        if time.time() - since > self._parts.settings.wal_late_after_s:
            return "late"
        return "waiting" if newest_at is None else "archiving"

    def _reason(self, instance: HostedInstance) -> str | None:
        found = self._running.get(instance.instance_id)
        return None if found is None else found[0].reason

    def _newest(self, instance: HostedInstance, chain: WalChain) -> float | None:
        at = time.time() if is_at_rest(chain) and instance.process is None else chain.newest_at
        return None if at is None else chain.rounded(at)

    def ranges(self, instance: HostedInstance) -> list[tuple[float, float]]:
        """The moments that can be restored: from and until when, oldest first."""
        bases = self._chains.bases(instance.instance_id)
        found = []
        for chain in self._chains.of(instance.instance_id):
            newest_at = self._newest(instance, chain)
            own = [each.consistent_at for each in bases if each.chain_id == chain.chain_id]
            if newest_at is not None and own and own[0] <= newest_at:
                found.append((own[0], newest_at))
        return found

    def begun(self, instance: HostedInstance) -> WalChain | None:
        """What a backup that is made now may be continued by."""
        return self._chains.open(instance.instance_id)

    def start_of(
        self, instance: HostedInstance, before: WalChain | None, need: WalNeed | None
    ) -> WalStart | None:
        """Of a backup during which one chain went on that has all its WAL; else None."""
        chain = self._chains.open(instance.instance_id)
        if before is None or chain is None or need is None or chain.chain_id != before.chain_id:
            return None
        name = need.first or str(chain.segment(before.next_segment))
        first = Segment.parse(name)
        if first is None or first.timeline != chain.timeline:
            return None
        if first.number < chain.first_segment:
            return None
        # As moments are told, in milliseconds, and not before it.
        per_s = 1 if chain.is_of_files else 1000
        return WalStart(chain.chain_id, name, math.ceil(need.consistent_at * per_s) / per_s)

    def add_base(self, instance_id: str, backup_id: str, start: WalStart) -> None:
        """From now on the WAL is kept that the backup needs."""
        for chain in self._chains.of(instance_id):
            if chain.chain_id == start.chain_id:
                self._chains.add_base(chain, backup_id, start)

    def drop_bases(self, backup_ids: Iterable[str]) -> None:
        """They go, and with them the WAL that only they need, once it is trimmed."""
        self._chains.drop_bases(backup_ids)

    async def trim(self, instance_id: str) -> None:
        """Removes the WAL that no backup needs any more. No backup of it is being made."""
        continued = {each.chain_id for each in self._chains.bases(instance_id)}
        for chain in self._chains.of(instance_id):
            if chain.chain_id not in continued and chain.ended_at is not None:
                await self._parts.store.remove_chain(instance_id, chain.chain_id)
                self._chains.forget(chain)
            else:
                await self._trim(chain, self._chains.first_needed(chain))

    async def _trim(self, chain: WalChain, first: int) -> None:
        if first <= chain.first_segment:
            return
        # Noted first: what is removed is not looked for.
        former = chain.first_segment
        self._chains.trim(chain, first)
        running = self._running.get(chain.instance_id)
        if running is not None and running[0].chain is not None:
            running[0].chain.first_segment = first
        names = [str(chain.segment(number)) for number in range(former, first)]
        await self._parts.store.remove(chain.instance_id, chain.chain_id, names)

    def erase(self, instance_id: str) -> None:
        """What is in the store goes with its backups."""
        self._chains.erase(instance_id)

    async def sweep(self) -> None:
        """What a cell that was killed had not removed."""
        for instance in list(self._supervisor.instances.values()):
            if not instance.has_backup_key or instance.backups_lock.locked():
                continue
            async with instance.backups_lock:
                try:
                    await self.trim(instance.instance_id)
                except StoreError as error:
                    log.warning("cell.wal_not_trimmed", reason=str(error))
                    return


def _gap(chain: WalChain) -> dict[str, Any]:
    return {
        "at": moment(chain.ended_at),
        "reason": for_owner(chain.gap or ""),
        "restorable_until": moment(chain.newest_at),
    }
