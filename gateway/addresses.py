"""Whether an address is on an allow-list, and whose it may be: one answer for all rooms."""

import functools
import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

IPV6_LEVELS = (32, 48, 56, 64)


def plain_address(client: str) -> Address:
    """An IPv4 client that reached an IPv6 socket is an IPv4 client."""
    address = ipaddress.ip_address(client.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


@functools.lru_cache(4_096)
def levels(client: str) -> tuple[str, ...]:
    """Whose an address may be, widest first: what is shared is shared at each level in turn.

    IPv6: a provider's /32, what is had for nothing (/48), a line or small server (/56) and what one
    customer has at least (/64), whose addresses count as one. IPv4: a /24, and the address itself.
    What is no address, as of a peer on a unix socket, stands for itself.
    """
    try:
        address = plain_address(client)
    except ValueError:
        return (client,)
    if isinstance(address, ipaddress.IPv4Address):
        return _within(address, 32, 24), str(address)
    return tuple(_within(address, 128, prefix) for prefix in IPV6_LEVELS)


def _within(address: Address, bits: int, prefix: int) -> str:
    rest = bits - prefix
    return f"{type(address)(int(address) >> rest << rest)}/{prefix}"


def customer(client: str) -> str:
    """What a bound counts by: the narrowest level."""
    return levels(client)[-1]


def parse_networks(cidrs: Iterable[str] | None) -> tuple[Network, ...] | None:
    """None, which is no list at all, stays None."""
    return None if cidrs is None else tuple(ipaddress.ip_network(c, strict=False) for c in cidrs)


def admits(networks: tuple[Network, ...] | None, client: str) -> bool:
    """Where there is no list every client is admitted, also one whose address nobody knows."""
    if networks is None:
        return True
    address = plain_address(client) if client else None
    return address is not None and any(address in network for network in networks)
