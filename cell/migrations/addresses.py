"""Which addresses a source may have: none that leads into the network of the cell.

What is connected to is the address that was looked at, not the name, so that a name that leads
elsewhere a moment later has no effect.
"""

import asyncio
import socket
from functools import partial
from typing import Any

from cell.migrations.errors import SourceUnreachableError
from cell.runtime.own_threads import in_daemon_thread
from gateway.public_addresses import is_allowed

RESOLVE_WITHIN_S = 10.0


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
