"""Owns the write of an answer that is whole: its head and its body go out together.

Uvicorn writes each as it comes, and a write takes as long as a good part of the rest.
"""

from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def sends_whole(cycle: RequestResponseCycle) -> Any:
    """In place of the cycle's `send`: a head that tells its length waits for what follows it."""
    send = cycle.send
    waiting: list[Any] = []

    def send_whole(message: Any) -> Any:
        if waiting or message["type"] == "http.response.start":
            return send_together(message)
        return send(message)

    async def send_together(message: Any) -> None:
        if message["type"] == "http.response.start" and _waits(cycle, message):
            waiting[:] = [message]
        elif not waiting:
            await send(message)
        else:
            transport = cycle.transport
            cycle.transport = cast("Any", _Joining(transport))
            try:
                await send(waiting.pop())
                await send(message)
            finally:
                cycle.transport = transport

    return send_whole


def _waits(cycle: RequestResponseCycle, message: Any) -> bool:
    """An answer to HEAD has nothing else to be written with, and a stream may take its time."""
    if cycle.response_started or cycle.scope["method"] == "HEAD":
        return False
    return any(name == b"content-length" for name, _ in message.get("headers", ()))


class _Joining:
    """A transport that keeps the first write for the second."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._first: bytes | None = None

    def write(self, data: bytes) -> None:
        if self._first is None:
            self._first = data
        else:
            self._transport.write(self._first + data)
            self._first = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
