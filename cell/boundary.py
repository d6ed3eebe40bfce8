"""Who is calling the cell: the control plane by signature, the gateway by token, or anybody."""

import hmac

from cell.agent import Cell
from specserver import Boundary, Exchange, MethodNotAllowed, Reply, Unauthenticated


def make_boundary(cell: Cell) -> Boundary:
    async def boundary(exchange: Exchange) -> Reply:
        authenticate(cell, exchange)
        arguments = exchange.arguments
        key = arguments.get("operation_key")
        if key is None:
            return await exchange.invoke_async(cell)
        lease: int = arguments["operation_lease"]
        asked = f"{exchange.request.method} {exchange.request.path}"
        return await cell.operations.once(asked, key, lease, lambda: exchange.invoke_async(cell))

    return boundary


def make_mounted_boundary(cell: Cell) -> Boundary:
    """For the app of a service that runs in the cell: the same callers, its own state."""

    async def boundary(exchange: Exchange) -> Reply:
        authenticate(cell, exchange)
        return await exchange.invoke_async(exchange.app_state)

    return boundary


def authenticate(cell: Cell, exchange: Exchange) -> None:
    """By the scheme the document names; an operation that names none checks a one-time token."""
    request = exchange.request
    schemes = {name for requirement in exchange.operation.security for name in requirement}
    if "control" in schemes:
        cell.signatures.verify(request, exchange.body_bytes)
    elif "gateway" in schemes:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), cell.gateway_token.encode()):
            raise Unauthenticated("only the gateway of this cell may call this")
    elif request.method == "HEAD":
        # Answered like GET it would use the token up for an answer without a body.
        raise MethodNotAllowed("HEAD is not supported here", headers={"Allow": "GET, OPTIONS"})
