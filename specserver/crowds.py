"""Owns how many connections one address may have to a server."""

import math
from asyncio import Transport
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address, ip_network
from typing import Protocol


class Connection(Protocol):
    transport: Transport


class Crowds:
    """Counts connections by address; an IPv6 /64, which belongs to one customer, is one address.

    Addresses in the `exempt` networks are not counted, because proxies connect for many clients;
    their connections count only towards the total, `all_told`.
    """

    def __init__(self, of_one: int, exempt: Iterable[str] = (), all_told: float = math.inf) -> None:
        self.of_one = of_one
        self._exempt = [ip_network(cidr, strict=False) for cidr in exempt]
        self._all_told = all_told
        self._total = 0
        # By network and then by address; and how many connections each network has.
        self._customers: dict[str, dict[str, dict[Connection, None]]] = {}
        self._of_network: Counter[str] = Counter()

    def enter(self, peer: str, connection: Connection) -> tuple[str, int]:
        """The address that it is counted under, and how many connections that has now."""
        self._total += 1
        customer = self._customer(peer)
        if not customer:
            return "", 0
        network = _network(customer)
        own = self._customers.setdefault(network, {}).setdefault(customer, {})
        own[connection] = None
        self._of_network[network] += 1
        return customer, len(own)

    def leave(self, customer: str, connection: Connection) -> None:
        self._total -= 1
        network = _network(customer) if customer else ""
        within = self._customers.get(network, {})
        own = within.get(customer, {})
        if connection not in own:
            return
        del own[connection]
        self._of_network[network] -= 1
        if not own:
            del within[customer]
        if not within:
            del self._customers[network], self._of_network[network]

    def is_full(self) -> bool:
        return self._total > self._all_told

    def first_to_go(self, newcomer: Connection) -> Connection | None:
        """The oldest of the address that has most, in the network that has most.

        None if there is only the newcomer.
        """
        network = max(self._of_network, key=self._of_network.__getitem__, default="")
        within = self._customers.get(network, {})
        own = max(within.values(), key=len, default={})
        return next((each for each in own if each is not newcomer), None)

    def _customer(self, peer: str) -> str:
        """The address to count under; empty if it is not counted."""
        try:
            address = ip_address(peer)
        except ValueError:
            return ""
        if isinstance(address, IPv6Address):
            mapped = address.ipv4_mapped
            if mapped is None:
                address = IPv6Network((int(address) >> 64 << 64, 64)).network_address
            else:
                address = mapped
        return "" if any(address in network for network in self._exempt) else str(address)


@lru_cache(16_384)
def _network(customer: str) -> str:
    """An IPv4 /24 or an IPv6 /48, of whose addresses one holder may have all."""
    bits = 48 if ":" in customer else 24
    return str(ip_network((customer, bits), strict=False))
