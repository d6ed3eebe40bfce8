"""Which addresses a source may have: none that leads into the network of the cell.

What is connected to is the address that was looked at, not the name, so that a name that leads
elsewhere a moment later has no effect.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any, Final

from cell.migrations.errors import SourceUnreachableError
from cell.runtime.own_threads import in_daemon_thread

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

RESOLVE_WITHIN_S = 10.0
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
    """`excepted` are networks that the cell's settings allow although they are denied."""
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


class SourceHost:
    """Looked up again for each connection, but never twice at once.

    A name server that does not answer holds one thread of a migration, and none of the cell's.
    """

    def __init__(self, host: str, port: int, excepted: tuple[str, ...]) -> None:
        self._host = host
        self._port = port
        self._excepted = excepted
        self._asking: asyncio.Task[list[Any]] | None = None

    async def address(self) -> str:
        """One that may be connected to. Raises SourceUnreachableError."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        try:
            async with asyncio.timeout(RESOLVE_WITHIN_S):
                found = await asyncio.shield(self._asking)
        except (OSError, TimeoutError, UnicodeError) as error:
            text = f"the host {self._host} of the source cannot be resolved"
            raise SourceUnreachableError(text) from error
        return _allowed(self._host, found, self._excepted)

    async def _ask(self) -> list[Any]:
        asks = partial(socket.getaddrinfo, self._host, self._port, type=socket.SOCK_STREAM)
        return await in_daemon_thread(asks)


def _allowed(host: str, found: list[Any], excepted: tuple[str, ...]) -> str:
    addresses = [str(place[0]) for *_, place in found]
    for address in addresses:
        if is_allowed(address, excepted):
            return address
    # Owners are shown no addresses, so one that they gave is not repeated.
    told = "the source has" if host in addresses else f"the host {host} of the source leads to"
    raise SourceUnreachableError(
        f"{told} an address that this cell does not connect to; the source must have a public "
        "address, or be in a network that the cell's settings allow"
    )
