"""Archived WAL for a restore: what leads from a backup to a moment, all of it or nothing."""

import time
from dataclasses import dataclass
from pathlib import Path

from cell.backups.sealed_objects import DamagedError
from cell.backups.wal_names import HISTORY, SEGMENT_BYTES, Segment
from cell.backups.wal_store import WalStore
from cell.instances.copied import Copied
from cell.instances.wal_chains import WalBase, WalChain, WalChains, is_at_rest
from cell.runtime import budget
from cell.runtime.own_threads import in_own_thread
from cell.timestamps import moment
from specserver import Conflict

FOLDER = "wal"
"""In the folder of a backup that was unpacked."""


@dataclass(frozen=True)
class WalPlan:
    """The WAL that leads from a backup to a moment: the names of its objects, in their order."""

    chain: WalChain
    names: tuple[str, ...]
    partial_bytes: int = 0
    """Of the segment that fills, so many are needed at least."""

    @property
    def size_bytes(self) -> int:
        return len(self.names) * SEGMENT_BYTES


class WalRecoveries:
    def __init__(self, chains: WalChains, store: WalStore, copied: Copied) -> None:
        self.chains = chains
        self.store = store
        self._copied = copied

    async def plan(self, instance_id: str, backup_id: str, at: float) -> WalPlan:
        """Conflict where that moment cannot be recovered from that backup."""
        base = self._base(instance_id, backup_id)
        chains = {each.chain_id: each for each in self.chains.of(instance_id)}
        chain = chains.get(base.chain_id) if base else None
        if base is None or chain is None:
            raise Conflict(f"no WAL is archived that continues the backup {backup_id}")
        newest_at = (time.time() if is_at_rest(chain) else chain.newest_at) or 0.0
        at = chain.rounded(at)
        if newest_at < base.consistent_at:
            if chain.gap is not None:
                raise Conflict(
                    f"no moment after the backup {backup_id} can be restored: {chain.gap}"
                )
            raise Conflict(
                f"no moment after the backup {backup_id} is archived yet: the first one will be"
                f" {moment(base.consistent_at)}"
            )
        if not base.consistent_at <= at <= newest_at:
            raise Conflict(
                f"from the backup {backup_id}, moments from {moment(base.consistent_at)} to"
                f" {moment(newest_at)} can be restored, and not {moment(at)}"
            )
        there = await self.store.names_in_each(instance_id, chain.chain_id)
        last = self.chains.last_segment(chain, at)
        names = tuple(_names(chain, base.first_segment, last, there))
        return WalPlan(chain, names, self._partial_bytes(chain, at))

    def _partial_bytes(self, chain: WalChain, at: float) -> int:
        """What was copied last may be older than what was archived, and new enough for a moment."""
        copy = self._copied.wal(chain.chain_id)
        if copy is None or at > copy.until or copy.next_segment != chain.next_segment:
            return chain.partial_bytes
        return min(chain.partial_bytes, copy.partial_bytes)

    def _base(self, instance_id: str, backup_id: str) -> WalBase | None:
        bases = self.chains.bases(instance_id)
        return next((each for each in bases if each.backup_id == backup_id), None)

    async def fetch(self, plan: WalPlan, target: Path) -> bool:
        """Into a new folder in `target`. Raises DamagedError or StoreError.

        True where any of it was read from the second store.
        """
        folder = target / FOLDER
        await in_own_thread(folder.mkdir)
        chain, either = plan.chain, self.store.stores.reading()
        for name in plan.names:
            budget.go_on()
            given = (chain.instance_id, chain.chain_id, name)
            content = await self.store.get(*given, either)
            segment = Segment.parse(name)
            if segment is not None and name == segment.partial:
                if segment.number == chain.next_segment and len(content) < plan.partial_bytes:
                    raise DamagedError(f"WAL segment {name} is older than what was archived")
            elif segment is not None and len(content) != SEGMENT_BYTES and not chain.is_of_files:
                raise DamagedError(f"WAL segment {name} is cut off")
            # As long as the server expects it.
            padded = segment is not None and not chain.is_of_files
            await in_own_thread(_write, folder / (str(segment or name)), content, padded)
        return either.used_copy


def _names(chain: WalChain, first: int, last: int, there: tuple[set[str], set[str]]) -> list[str]:
    """Of what the first store has, and where it lacks something, of what the second has.

    Whatever else somebody has put into the second is asked for by nobody. DamagedError with the
    first that is missing.
    """
    history = f"{chain.timeline:08X}{HISTORY}"
    has_one = chain.timeline > 1 and not chain.is_of_files
    found = [history] if has_one and any(history in each for each in there) else []
    for number in range(first, last + 1):
        segment = chain.segment(number)
        choices = [str(segment)]
        if number >= chain.next_segment:
            choices.append(segment.partial)
        is_filling = number == chain.next_segment and _filled(chain)
        is_archived = number < chain.next_segment or is_filling
        stores = there if is_archived else there[:1]
        name = next((name for each in stores for name in choices if name in each), None)
        if name is not None:
            found.append(name)
        elif is_archived:
            raise DamagedError(f"WAL segment {segment} is missing from the store")
        else:
            # The next begins with it, and nothing is in it yet.
            break
    return found


def _filled(chain: WalChain) -> bool:
    return chain.partial_bytes > 0


def _write(path: Path, content: bytes, padded: bool) -> None:
    with path.open("xb") as file:
        file.write(content)
        if padded:
            file.truncate(SEGMENT_BYTES)
