"""The pages of the console within the cell's own server."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import ThreadSensitiveContext
from asgiref.wsgi import WsgiToAsgi

from pages.console import STATEMENT_BYTES_MAX, Desk, make_app

ROOT = "/console"
# A statement in JSON, where each of its bytes may take six, as in \u0000.
BODY_BYTES_MAX = 6 * STATEMENT_BYTES_MAX + 1_000
REQUESTS_MAX = 32

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]


class Pages:
    """Each request has a thread of its own, and there is an end to how many have one."""

    def __init__(self, desk: Desk) -> None:
        self._app: Any = WsgiToAsgi(make_app(desk))  # type: ignore[no-untyped-call]
        self._room = asyncio.Semaphore(REQUESTS_MAX)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        async with self._room:
            body = await _read(receive)
            if body is None:
                await _refuse(send)
                return

            async def whole() -> Any:
                return {"type": "http.request", "body": body}

            async with ThreadSensitiveContext():
                await self._app({**scope, "root_path": ROOT}, whole, send)


async def _read(receive: Receive) -> bytes | None:
    """None where there is too much of it, or nobody there any more."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            return None
        if not message.get("more_body"):
            return bytes(body)


async def _refuse(send: Send) -> None:
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": b"the request is too large\n"})
