"""Connections of `httpcore` on asyncio's transports, for a caller who bounds the time of it all.

Its own backends bound each read and write by itself, which is a third of what a small request
costs. Nothing here has a time limit.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import httpcore

RECEIVED_BYTES_MAX: Final = 1 << 18
"""Of what nobody has read yet; then the other side waits."""


class NetworkStream(asyncio.Protocol, httpcore.AsyncNetworkStream):
    """One connection, read by one task at a time and written by one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._has_ended = self._is_lost = False
        self._fault: Exception | None = None
        self._is_full = False
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None

    @classmethod
    async def connected(cls, address: str, port: int, local_address: str | None) -> "NetworkStream":
        """Raises httpcore.ConnectError."""
        local = None if local_address is None else (local_address, 0)
        try:
            _, made = await asyncio.get_running_loop().create_connection(
                cls, address, port, local_addr=local
            )
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return made

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > RECEIVED_BYTES_MAX:
            self._pause(is_full=True)
        _wake(self._reading)

    def eof_received(self) -> None:
        self._has_ended = True
        _wake(self._reading)

    def connection_lost(self, error: Exception | None) -> None:
        self._has_ended = self._is_lost = True
        self._fault = error
        _wake(self._reading)
        _wake(self._writing)

    def pause_writing(self) -> None:
        self._writing = self._loop.create_future()

    def resume_writing(self) -> None:
        _wake(self._writing)
        self._writing = None

    # What httpcore asks.

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109 -- its signature
        while not self._received:
            if self._fault is not None:
                raise httpcore.ReadError(str(self._fault)) from self._fault
            if self._has_ended:
                return b""
            self._reading = self._loop.create_future()
            await self._reading
        taken = bytes(self._received[:max_bytes])
        del self._received[:max_bytes]
        if self._is_full and len(self._received) <= RECEIVED_BYTES_MAX:
            self._pause(is_full=False)
        return taken

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 -- as above
        if not buffer:
            return
        if self._transport is None or self._transport.is_closing():
            raise httpcore.WriteError("the connection is closed") from self._fault
        self._transport.write(buffer)
        if self._writing is not None:
            await self._writing
            if self._is_lost:
                raise httpcore.WriteError("the connection ended") from self._fault

    async def aclose(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 -- as above
    ) -> httpcore.AsyncNetworkStream:
        assert self._transport is not None
        try:
            secured = await self._loop.start_tls(
                self._transport, self, ssl_context, server_hostname=server_hostname
            )
        except (OSError, ssl.SSLError) as error:
            self._transport.abort()
            raise httpcore.ConnectError(str(error)) from error
        except BaseException:
            self._transport.abort()
            raise
        if secured is None:
            raise httpcore.ConnectError("the connection ended")
        self._transport = secured
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            # Of a connection that nobody uses: it has ended, or something came that nobody asked.
            return bool(self._received) or self._has_ended
        if self._transport is None or info not in _NAMES:
            return None
        return self._transport.get_extra_info(_NAMES[info])

    def _pause(self, *, is_full: bool) -> None:
        assert self._transport is not None
        if is_full != self._is_full:
            self._is_full = is_full
            act: Callable[[], None] = (
                self._transport.pause_reading if is_full else self._transport.resume_reading
            )
            act()


_NAMES: Final = {
    "ssl_object": "ssl_object",
    "socket": "socket",
    "client_addr": "sockname",
    "server_addr": "peername",
}
"""By httpcore's names those of asyncio's transports."""


class NetworkBackend(httpcore.AsyncNetworkBackend):
    """Connects to addresses, on the loop that runs."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 -- httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002 -- as above
    ) -> httpcore.AsyncNetworkStream:
        return await NetworkStream.connected(host, port, local_address)


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
