"""Whether an address is on an allow-list: one answer for the gateway and for the cell."""

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def plain_address(client: str) -> Address:
    """An IPv4 client that reached an IPv6 socket is an IPv4 client."""
    address = ipaddress.ip_address(client.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def customer(client: str) -> str:
    """What a bound counts by. One IPv6 customer holds a /64, so its addresses count as one."""
    address = plain_address(client)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
    return str(address)


def provider(client: str) -> str:
    """What a pool that is full counts by. Some hold a /48 of IPv6, and so 65,536 of a /64."""
    address = plain_address(client)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(address) >> 80 << 80, 48)))
    return str(address)


def parse_networks(cidrs: Iterable[str] | None) -> tuple[Network, ...] | None:
    """None, which is no list at all, stays None."""
    return None if cidrs is None else tuple(ipaddress.ip_network(c, strict=False) for c in cidrs)


def admits(networks: tuple[Network, ...] | None, client: str) -> bool:
    """Where there is no list every client is admitted, also one whose address nobody knows."""
    if networks is None:
        return True
    address = plain_address(client) if client else None
    return address is not None and any(address in network for network in networks)
