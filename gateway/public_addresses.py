"""Which addresses whoever connects for a tenant may connect to: none that leads within.

The rooms look up what a tenant names, ask here of every address, and connect to the address that
was asked about, so that a name that leads elsewhere a moment later has no effect.
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Told one by one: `is_global` lets some of them pass (RFC 6890 and its successors).
DENIED: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
            *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24"),
            *("192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
            *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4"),
            "240.0.0.0/4",
            # Loopback and unspecified, and IPv4 addresses in disguise.
            *("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"),
            # Teredo, benchmarks, ORCHID and others of the protocol's own; 6to4.
            *("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48"),
            *("100::/64", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10"),
            "ff00::/8",
        ),
    )
)


@lru_cache(maxsize=16)
def networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(each, strict=False) for each in texts)


def is_allowed(text: str, excepted: tuple[str, ...] = ()) -> bool:
    """`excepted` are networks that the settings allow although they are denied."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if _is_in(address, networks(excepted)):
        return True
    return not _is_in(address, DENIED)


def _is_in(address: Address, among: Iterable[Network]) -> bool:
    return any(address.version == each.version and address in each for each in among)
