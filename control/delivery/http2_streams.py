"""Connections over HTTP/2 on which a request that is given up makes room for others.

A host may be shared by many organizations, whose requests go over one connection. httpcore forgets
a request that was cancelled, or whose answer was not read to its end, without telling the other
side: it stays open, and after a hundred of them, or 16 MiB of what nobody reads, no other request
to that host gets through. Here it is reset.

What begins with an underscore is httpcore's own, which pyproject.toml holds to one minor version.
"""

import asyncio
from contextlib import suppress
from typing import Final

import httpcore
from h2.errors import ErrorCodes
from h2.events import DataReceived
from h2.exceptions import ProtocolError

WRITE_S: Final = 10.0
"""For what is written at once, at most."""


class ResettingPool(httpcore.AsyncConnectionPool):
    """Without proxies, and with connections over TCP alone."""

    def create_connection(self, origin: httpcore.Origin) -> httpcore.AsyncConnectionInterface:
        return _Connection(
            origin=origin,
            ssl_context=self._ssl_context,
            keepalive_expiry=self._keepalive_expiry,
            http1=self._http1,
            http2=self._http2,
            network_backend=self._network_backend,
        )


class _Connection(httpcore.AsyncHTTPConnection):
    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        if self._connection is None:
            try:
                async with self._request_lock:
                    if self._connection is None:
                        self._connection = await self._connected(request)
            except BaseException:
                self._connect_failed = True
                raise
        return await super().handle_async_request(request)

    async def _connected(self, request: httpcore.Request) -> httpcore.AsyncConnectionInterface:
        stream = await self._connect(request)
        tls = stream.get_extra_info("ssl_object")
        is_http2 = tls is not None and tls.selected_alpn_protocol() == "h2"
        made = _Http2Connection if is_http2 else httpcore.AsyncHTTP11Connection
        return made(self._origin, stream, self._keepalive_expiry)


class _Http2Connection(httpcore.AsyncHTTP2Connection):
    async def _write_outgoing_data(self, request: httpcore.Request) -> None:
        """Goes on where the request is given up: half a record of TLS would end the connection."""
        await asyncio.shield(self._write_whole(request))

    async def _write_whole(self, request: httpcore.Request) -> None:
        try:
            async with asyncio.timeout(WRITE_S):
                await super()._write_outgoing_data(request)
        except TimeoutError:
            # Nobody else is to wait for a receiver that does not read.
            self._connection_error = True
            raise

    async def _response_closed(self, stream_id: int) -> None:
        self._reset(stream_id)
        await super()._response_closed(stream_id)

    def _reset(self, stream_id: int) -> None:
        """It is told with whatever is sent next: a receiver that does not read holds up nobody."""
        events = self._events.get(stream_id, ())
        unread = [each.flow_controlled_length for each in events if isinstance(each, DataReceived)]
        stream = self._h2_state.streams.get(stream_id)
        # The other side may have closed the connection meanwhile.
        with suppress(ProtocolError):
            self._h2_state.acknowledge_received_data(sum(each or 0 for each in unread), stream_id)
            if stream is not None and not stream.closed:
                self._h2_state.reset_stream(stream_id, ErrorCodes.CANCEL)
