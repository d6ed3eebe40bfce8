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
    parsed = _address(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((int(parsed) >> 64 << 64, 64)))
    return address


def networks(address: str) -> tuple[str, str]:
    """What one holder has at least, and what many have together: /32 and /24, in IPv6 /56 and /48.

    A line at home or a small server gets a /56; a /48 is had for nothing.
    """
    parsed = _address(address)
    if parsed is None:
        return address, address
    near, far = (32, 24) if isinstance(parsed, IPv4Address) else (56, 48)
    return str(ip_network((parsed, near), strict=False)), str(
        ip_network((parsed, far), strict=False)
    )


def levels(address: str) -> tuple[str, ...]:
    """By what those who are not known take turns: network, what one holder has, and `rate_key`.

    In IPv6 a network's provider comes first: whoever is one has a /32, and so 65,536 of a /48.
    """
    near, far = networks(address)
    own = rate_key(address)
    if near.endswith("/56"):
        return str(ip_network(far).supernet(new_prefix=32)), far, near, own
    return (far, own) if far != own else (own,)


def _network(cidr: str) -> IPv4Network | IPv6Network:
    return ip_network(cidr, strict=False)


def _address(text: str | None) -> Address | None:
    try:
        address = ip_address(text or "")
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
