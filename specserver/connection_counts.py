"""Owns how many connections one address may have to a server."""

import math
from asyncio import Transport
from collections import Counter
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Protocol

Levels = tuple[str, ...]


class CountedConnection(Protocol):
    transport: Transport


class ConnectionCounts:
    """Counts connections by address, and by what `levels` says that an address is within.

    Addresses in the `exempt` networks are not counted, because proxies connect for many clients;
    their connections count only towards the total, `all_told`.
    """

    def __init__(
        self,
        of_one: int,
        exempt: Iterable[str] = (),
        all_told: float = math.inf,
        levels: Callable[[str], Levels] = lambda peer: (peer,),
    ) -> None:
        self.of_one = of_one
        self._exempt = [ip_network(cidr, strict=False) for cidr in exempt]
        self._all_told = all_told
        self._levels = levels
        self._total = 0
        # Of each group, which is named by its levels: those just below, and all connections in it.
        self._below: dict[Levels, dict[Levels, None]] = {}
        self._sizes: Counter[Levels] = Counter()
        self._own: dict[Levels, dict[CountedConnection, None]] = {}

    def enter(self, peer: str, connection: CountedConnection) -> tuple[Levels, int]:
        """What it is counted as, and how many connections its address has now."""
        self._total += 1
        if not self._is_counted(peer):
            return (), 0
        counted_as = self._levels(peer)
        for depth in range(len(counted_as)):
            group = counted_as[: depth + 1]
            self._below.setdefault(group[:-1], {})[group] = None
            self._sizes[group] += 1
        own = self._own.setdefault(counted_as, {})
        own[connection] = None
        return counted_as, len(own)

    def leave(self, counted_as: Levels, connection: CountedConnection) -> None:
        self._total -= 1
        own = self._own.get(counted_as, {})
        if connection not in own:
            return
        del own[connection]
        if not own:
            del self._own[counted_as]
        for depth in range(len(counted_as), 0, -1):
            group = counted_as[:depth]
            self._sizes[group] -= 1
            if not self._sizes[group]:
                del self._sizes[group], self._below[group[:-1]][group]
            if not self._below[group[:-1]]:
                del self._below[group[:-1]]

    def is_full(self) -> bool:
        return self._total > self._all_told

    def first_to_go(self, newcomer: CountedConnection) -> CountedConnection | None:
        """The oldest of the address that has most, in the network that has most, and so on.

        None if there is only the newcomer.
        """
        group: Levels = ()
        while group in self._below:
            group = max(self._below[group], key=self._sizes.__getitem__)
        return next((each for each in self._own.get(group, {}) if each is not newcomer), None)

    def _is_counted(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        plain = (isinstance(address, IPv6Address) and address.ipv4_mapped) or address
        return not any(plain in network for network in self._exempt)
