"""One log line per request: what was asked, how it ended, how long it took, under which id."""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import structlog

_LOG = structlog.get_logger("api")
_QUIET = frozenset({"/healthz"})

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]


class AccessLog:
    """An ASGI app around another. Queries are left out: they may hold what a person typed."""

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _QUIET:
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        seen: dict[str, Any] = {"status": None, "request_id": None}

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                seen["request_id"] = _request_id(message)
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            _LOG.info(
                "request",
                method=scope["method"],
                # As it was sent, percent-encoded: what is decoded may hold control characters.
                path=scope.get("raw_path", b"").decode("latin-1"),
                duration_ms=round((time.perf_counter() - started) * 1000, 1),
                **seen,
            )


def _request_id(message: Message) -> str | None:
    for name, value in message.get("headers", ()):
        if name == b"x-request-id":
            return str(value.decode("latin-1"))
    return None
