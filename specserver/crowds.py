"""Owns how many connections one address may have to a server."""

from collections.abc import Iterable
from ipaddress import IPv6Address, IPv6Network, ip_address, ip_network


class Crowds:
    """Counts by address, IPv6 by its /64, which is one customer's.

    Not those that come by one of the `exempt` networks, as proxies speak for many.
    """

    def __init__(self, of_one: int, exempt: Iterable[str] = ()) -> None:
        self.of_one = of_one
        self._exempt = [ip_network(cidr, strict=False) for cidr in exempt]
        self._counts: dict[str, int] = {}

    def enter(self, peer: str) -> tuple[str, int]:
        """Under which it is counted, and how many there are now."""
        customer = self._customer(peer)
        if not customer:
            return "", 0
        count = self._counts[customer] = self._counts.get(customer, 0) + 1
        return customer, count

    def leave(self, customer: str) -> None:
        if not customer:
            return
        left = self._counts[customer] - 1
        if left:
            self._counts[customer] = left
        else:
            del self._counts[customer]

    def _customer(self, peer: str) -> str:
        """Empty where it is not counted."""
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
