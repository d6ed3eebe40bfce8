"""One log line per request: what was asked, how it ended, how long it took, under which id."""

import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

import structlog

from control.boundary.addresses import Proxies
from gateway.log_lines import cut
from specserver.instruments import CounterInstrument, Duration, Level
from specserver.log_budget import LogBudget
from specserver.runtime import OPERATION, UNROUTED

_LOG = structlog.get_logger("api")
_PATH_MAX = 256
# What costs whoever causes it nothing, credentials included: only some of it is told one by one.
_CHEAP = frozenset({None, 401, 408, 413, 429, 503})
_QUIET = frozenset({"/healthz"})
_LIVE = b"text/event-stream"

REQUESTS: Final = CounterInstrument(
    "menagerie_http_requests",
    "Requests to the API by operation and status, without those for its health.",
    ("operation", "status"),
)
DURATIONS: Final = Duration(
    "menagerie_http_request_duration_seconds",
    "From a request to the end of its answer, without live streams.",
    ("operation",),
)
STREAMS: Final = Level("menagerie_http_live_streams", "Live streams of events that are open.")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]


class AccessLog:
    """An ASGI app around another. Queries are left out: they may hold what a person typed."""

    def __init__(self, app: Asgi, trusted_proxies: Iterable[str] = ()) -> None:
        self._app = app
        self._proxies = Proxies(trusted_proxies)
        self._budget = LogBudget()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _QUIET:
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        seen: dict[str, Any] = {"status": None, "request_id": None}
        live = 0

        def watch(message: Message) -> Awaitable[None]:
            nonlocal live
            if message["type"] == "http.response.start":
                live = int(_is_live(message))
                if live:
                    STREAMS.change(live)
                seen["status"] = message["status"]
                seen["request_id"] = _request_id(message)
            return send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            duration_s = time.perf_counter() - started
            operation = scope.get(OPERATION, "none")
            REQUESTS.add(operation, str(seen["status"] or "aborted"))
            if live:
                STREAMS.change(-live)
            else:
                DURATIONS.took(duration_s, operation)
            self._tell(scope, duration_s * 1000, seen)

    def _tell(self, scope: Message, duration_ms: float, seen: dict[str, Any]) -> None:
        facts = {
            "method": scope["method"],
            # As it was sent, percent-encoded: what is decoded may hold control characters.
            "path": cut(scope.get("raw_path", b"").decode("latin-1"), _PATH_MAX),
            "duration_ms": round(duration_ms, 1),
            **seen,
        }
        cheap = seen["status"] in _CHEAP or scope.get(UNROUTED)
        if not cheap or self._budget.takes(self._address(scope)):
            _LOG.info("request", **facts)

    def _address(self, scope: Message) -> str:
        forwarded = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        peer = scope["client"][0] if scope.get("client") else None
        return self._proxies.client_address(peer, b",".join(forwarded).decode("latin-1"))


def _is_live(message: Message) -> bool:
    return any(
        name == b"content-type" and value.startswith(_LIVE)
        for name, value in message.get("headers", ())
    )


def _request_id(message: Message) -> str | None:
    for name, value in message.get("headers", ()):
        if name == b"x-request-id":
            return str(value.decode("latin-1"))
    return None
