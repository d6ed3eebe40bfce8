"""Where a request comes from, believing no header but that of a trusted proxy."""

from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from gateway.addresses import levels

__all__ = ["UNKNOWN", "Proxies", "levels", "networks", "rate_key"]

Address = IPv4Address | IPv6Address
UNKNOWN = "local"  # a peer on a unix socket has no address


class Proxies:
    """The networks whose X-Forwarded-For counts."""

    def __init__(self, cidrs: Iterable[str]) -> None:
        self._networks = [_network(cidr) for cidr in cidrs]

    def client_address(self, peer: str | None, forwarded_for: str | None) -> str:
        """The nearest address that is not a trusted proxy: every hop further is hearsay."""
        address = _address(peer)
        hops = (forwarded_for or "").split(",")
        while address is not None and self._trusts(address) and hops:
            named = _address(hops.pop().strip())
            if named is None:
                break
            address = named
        return peer or UNKNOWN if address is None else str(address)

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def rate_key(address: str) -> str:
    """What a limit counts by. One IPv6 customer holds a /64, so its addresses count as one."""
    return levels(address)[-1]


def networks(address: str) -> tuple[str, str]:
    """What one holder has at least, and what many have together: /32 and /24, in IPv6 /56 and /48.

    A line at home or a small server gets a /56; a /48 is had for nothing.
    """
    *wider, own = levels(address)
    if not wider:
        return own, own
    return (wider[-1], wider[-2]) if ":" in own else (own, wider[-1])


def _network(cidr: str) -> IPv4Network | IPv6Network:
    return ip_network(cidr, strict=False)


def _address(text: str | None) -> Address | None:
    try:
        address = ip_address(text or "")
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
