"""Archived WAL, copied into the second store some seconds after it is archived."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from cell.backups.keys import BackupKeys
from cell.backups.object_copies import Copying
from cell.backups.sealed_objects import DamagedError
from cell.backups.wal_names import HISTORY, PARTIAL, Segment, of_chain
from cell.instances.copied import Copied, WalCopy
from cell.instances.hosted import HostedInstance
from cell.instances.wal_chains import WalChain, WalChains


class ObjectTurn(Protocol):
    """What is done to one object, when it is the instance's turn."""

    def __call__(self, work: Callable[..., Any], *given: Any) -> Awaitable[Any]: ...


class WalCopies:
    """Raises StoreError or DamagedError."""

    def __init__(
        self, copying: Copying, keys: BackupKeys, chains: WalChains, copied: Copied
    ) -> None:
        self._copying = copying
        self._keys = keys
        self._chains = chains
        self._copied = copied

    def until(self, instance: HostedInstance) -> float | None:
        """The newest moment that can be recovered from the second store; None where none can."""
        found = [self._copied.wal(each.chain_id) for each in self._chains.of(instance.instance_id)]
        return max((each.until for each in found if each is not None and each.until), default=None)

    async def copy(
        self, instance: HostedInstance, turn: ObjectTurn, *, is_check: bool, wanted: bool
    ) -> None:
        """All that is archived by now, where that is `wanted`.

        Where it `is_check`, also what the second store has lost; and what is archived no longer is
        removed from it.
        """
        instance_id = instance.instance_id
        there: dict[str, set[str]] = {}
        if is_check:
            first, second = await turn(self._copying.listings, instance_id)
            there = second.wal
            if not first.is_empty:
                await self._tidy(instance, turn, first.wal, second.wal)
        faults: list[DamagedError] = []
        for chain in self._chains.of(instance_id) if wanted else ():
            own = there.get(chain.chain_id, set()) if is_check else None
            await self._copy_chain(chain, turn, own, faults)
        if faults:
            raise faults[0]

    async def _copy_chain(
        self,
        chain: WalChain,
        turn: ObjectTurn,
        there: set[str] | None,
        faults: list[DamagedError],
    ) -> None:
        """What is damaged is left out: what comes later may be all that a later backup needs."""
        copy = self._copied.wal(chain.chain_id)
        is_new = copy is None
        copy = copy or WalCopy(chain.chain_id, chain.instance_id, chain.first_segment)
        if there is not None:
            self._compare(chain, copy, there)
        if is_new or there is not None:
            await self._copy_history(chain, turn)
        copy.next_segment = max(copy.next_segment, chain.first_segment)
        while copy.next_segment < chain.next_segment:
            name = str(chain.segment(copy.next_segment))
            if there is None or name not in there:
                try:
                    if await self._copy_object(chain, name, turn) is None:
                        return
                except DamagedError as error:
                    faults.append(error)
                await self._drop(chain, [f"{name}{PARTIAL}"], turn)
            copy.next_segment, copy.partial_bytes = copy.next_segment + 1, 0
            self._copied.save(copy)
        await self._copy_partial(chain, copy, turn)

    def _compare(self, chain: WalChain, copy: WalCopy, there: set[str]) -> None:
        """With what the second store has now."""
        for number in range(chain.first_segment, copy.next_segment):
            if str(chain.segment(number)) not in there:
                copy.next_segment, copy.partial_bytes = number, 0
                return
        if chain.segment(copy.next_segment).partial not in there:
            copy.partial_bytes = 0

    async def _copy_partial(self, chain: WalChain, copy: WalCopy, turn: ObjectTurn) -> None:
        """Of the segment that fills; all that is archived is copied then."""
        if chain.partial_bytes > copy.partial_bytes:
            name = chain.segment(chain.next_segment).partial
            size_bytes = await self._copy_object(chain, name, turn)
            if size_bytes is None or size_bytes < chain.partial_bytes:
                # It has filled meanwhile: the next time.
                return
            copy.partial_bytes = chain.partial_bytes
        if chain.newest_at is not None and chain.newest_at > copy.until:
            copy.until = chain.newest_at
            self._copied.save(copy)

    async def _copy_history(self, chain: WalChain, turn: ObjectTurn) -> None:
        """Of the timelines that lead to it; the first has none, nor have pieces of log files."""
        if chain.timeline > 1:
            await self._copy_object(chain, f"{chain.timeline:08X}{HISTORY}", turn)

    async def _copy_object(self, chain: WalChain, name: str, turn: ObjectTurn) -> int | None:
        """How many bytes of WAL are in it; None where it is archived no longer."""
        key = self._keys.find(chain.instance_id)
        if key is None:
            return None
        path = of_chain(chain.instance_id, chain.chain_id) + name
        found: int | None = await turn(self._copying.copy_wal, key, path)
        return found

    async def _drop(self, chain: WalChain, names: list[str], turn: ObjectTurn) -> None:
        prefix = of_chain(chain.instance_id, chain.chain_id)
        if names:
            await turn(self._copying.second.remove, [prefix + name for name in names])

    async def _tidy(
        self,
        instance: HostedInstance,
        turn: ObjectTurn,
        first: dict[str, set[str]],
        second: dict[str, set[str]],
    ) -> None:
        """What no backup needs any more. A chain that the first store still has is left alone."""
        chains = {each.chain_id: each for each in self._chains.of(instance.instance_id)}
        self._copied.forget_chains(instance.instance_id, set(chains))
        for chain_id, names in second.items():
            chain = chains.get(chain_id)
            if chain is not None:
                await self._drop(chain, _outdated(chain, names), turn)
            elif chain_id not in first:
                prefix = of_chain(instance.instance_id, chain_id)
                await turn(self._copying.second.remove_all, prefix)


def _outdated(chain: WalChain, names: set[str]) -> list[str]:
    found = []
    for name in sorted(names):
        segment = Segment.parse(name)
        if segment is None:
            continue
        has_filled = name.endswith(PARTIAL) and segment.number < chain.next_segment
        if segment.number < chain.first_segment or (has_filled and str(segment) in names):
            found.append(name)
    return found
