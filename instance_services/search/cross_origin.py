"""Owns what browsers ask before a page of another origin may use the engine.

Every origin may: what a request is allowed is told by its key, and no browser adds that by itself.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

_Scope = MutableMapping[str, Any]
_Call = Callable[..., Awaitable[Any]]

_EVERY_ORIGIN: Final = (b"access-control-allow-origin", b"*")
_METHODS: Final = b"DELETE, GET, PATCH, POST, PUT"
_MAX_AGE_S: Final = b"86400"
# A field's name is a token; anything else is not repeated.
_NAME_BYTES: Final = frozenset(
    b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ, "
)
_NAMES_MAX: Final = 1_000


class CrossOrigin:
    """An ASGI app around another: preflights are answered here, and answers say who may read."""

    def __init__(self, app: _Call) -> None:
        self._app = app

    async def __call__(self, scope: _Scope, receive: _Call, send: _Call) -> None:
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        if b"origin" not in headers:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            await _answer(headers.get(b"access-control-request-headers", b""), send)
        else:
            await self._app(scope, receive, _telling(send))


async def _answer(wanted: bytes, send: _Call) -> None:
    """All methods, and the headers that the page wants to send: `*` would leave out the key."""
    told = [
        _EVERY_ORIGIN,
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-max-age", _MAX_AGE_S),
        (b"vary", b"Access-Control-Request-Headers"),
        (b"content-length", b"0"),
    ]
    if wanted and len(wanted) <= _NAMES_MAX and _NAME_BYTES.issuperset(wanted):
        told.append((b"access-control-allow-headers", wanted))
    await send({"type": "http.response.start", "status": 200, "headers": told})
    await send({"type": "http.response.body", "body": b""})


def _telling(send: _Call) -> _Call:
    async def telling(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), _EVERY_ORIGIN]
        await send(message)

    return telling
