"""Who is calling the cell: the control plane by signature, the gateway by token, or anybody."""

import hmac
import re
from collections.abc import Awaitable, Callable

from cell.agent import Cell
from specserver import Boundary, Exchange, MethodNotAllowed, Reply, Unauthenticated

SENDS_SOURCE = "migrations.send_source"
_WAIT = re.compile(r"(?:^|[,\s])wait=(\d{1,3})(?:$|[,;\s])", re.ASCII)


class CallerBoundary:
    """A boundary that knows by the head who calls, so that a stranger's body is never read."""

    def __init__(self, cell: Cell, serve: Callable[[Exchange], Awaitable[Reply]]) -> None:
        self._cell = cell
        self._serve = serve

    def admit(self, exchange: Exchange) -> None:
        """By the scheme the document names; where it names none, a handler checks a token."""
        request, cell = exchange.request, self._cell
        schemes = _schemes(exchange)
        if "control" in schemes:
            cell.signatures.verify(request)
        elif "gateway" in schemes:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), cell.gateway_token.encode()):
                raise Unauthenticated("only the gateway of this cell may call this")
        elif request.method == "HEAD":
            # Answered like GET it would use the token up for an answer without a body.
            raise MethodNotAllowed("HEAD is not supported here", headers={"Allow": "GET, OPTIONS"})
        elif exchange.operation.id == SENDS_SOURCE:
            # A stranger's part of a file would take megabytes of memory.
            place = cell.sources.admit(exchange.path["token"], request.client or "")
            exchange.at_end(place)

    async def __call__(self, exchange: Exchange) -> Reply:
        if "control" in _schemes(exchange):
            self._cell.signatures.check_body(exchange.request, exchange.body_bytes)
        return await self._serve(exchange)


def make_boundary(cell: Cell) -> Boundary:
    async def serve(exchange: Exchange) -> Reply:
        arguments = exchange.arguments
        key = arguments.get("operation_key")
        if key is None:
            return await exchange.invoke_async(cell)
        lease: int = arguments["operation_lease"]
        asked = f"{exchange.request.method} {exchange.request.path}"
        return await cell.steps.once(
            *(asked, key, lease, lambda: exchange.invoke_async(cell)),
            wait_s=_wait_s(exchange.request.headers.get("Prefer", "")),
        )

    return CallerBoundary(cell, serve)


def make_mounted_boundary(cell: Cell) -> Boundary:
    """For the app of a service that runs in the cell: the same callers, its own state."""

    async def serve(exchange: Exchange) -> Reply:
        return await exchange.invoke_async(exchange.app_state)

    return CallerBoundary(cell, serve)


def _wait_s(preferences: str) -> float | None:
    """Of `Prefer: wait=…` (RFC 7240); None without one."""
    found = _WAIT.search(preferences)
    return float(found[1]) if found else None


def _schemes(exchange: Exchange) -> set[str]:
    return {name for requirement in exchange.operation.security for name in requirement}
