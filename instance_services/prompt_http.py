"""HTTP for services behind the gateway: a request that does not arrive in time is hung up on.

Uvicorn waits for the rest of a request without end, and whoever is let in waits in its place: a few
slow callers without a credential would use up the connections of an instance.
"""

from asyncio import TimerHandle, Transport

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

ARRIVE_WITHIN_S = 30.0
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PromptHttp(HttpToolsProtocol):
    """Uvicorn's protocol, with a limit on the time from a request's first byte to its last."""

    arrive_within_s = ARRIVE_WITHIN_S
    _arriving = True
    _head_is_read = False
    _limit: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # uvicorn's
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # A request that came whole, which is nearly every one, costs no timer.
        if not self._arriving:
            self._stop_waiting()
        elif self._limit is None:
            self._wait()

    def on_message_begin(self) -> None:
        self._arriving = True
        self._head_is_read = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._head_is_read = True

    def on_message_complete(self) -> None:
        self._arriving = False
        super().on_message_complete()

    def _wait(self) -> None:
        self._limit = self.loop.call_later(self.arrive_within_s, self._too_late)

    def _stop_waiting(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _too_late(self) -> None:
        self._limit = None
        cycle = self.cycle
        answering = cycle is not None and not cycle.response_complete
        if answering and (self.pipeline or not self._head_is_read):
            self._wait()  # an earlier request of the connection has yet to be answered
            return
        if not (answering and cycle.response_started) and not self.transport.is_closing():
            self.transport.write(_TOO_SLOW)
        self.transport.close()
