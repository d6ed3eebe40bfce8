"""Owns what is settled at start-up about an operation, and the order in which a request is met."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from specserver.binding import Binding, HandlerCall
from specserver.document import Document, DocumentInvalid
from specserver.exchange import Exchange
from specserver.operations import Operation
from specserver.replies import Reply, as_reply
from specserver.security import Security, Verifier
from specserver.threads import Threads
from specserver.validation import Schemas

Boundary = Callable[[Exchange], Any]

_BODILESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class Plan:
    """One operation, ready to serve."""

    def __init__(
        self,
        operation: Operation,
        resolver: Any,
        schemas: Schemas,
        *,
        boundary: Boundary | None,
        security: Security | None,
        threads: Threads,
        max_body_bytes: int,
    ) -> None:
        self.operation = operation
        self.threads = threads
        self.security = security
        self.binding = Binding(operation, schemas)
        handler = resolver.resolve(operation).function
        given = self.binding.argument_names
        self.call = HandlerCall(operation, handler, given, leading=boundary is not None)
        self.max_body_bytes = int(operation.extension("max-body-bytes", max_body_bytes))
        self.reads_body = (
            operation.method not in _BODILESS_METHODS or "requestBody" in operation.document
        )
        self._boundary = boundary
        if boundary is not None:
            self.on_loop = _is_async(boundary)
        else:
            self.on_loop = self.call.is_async

    async def answer(self, exchange: Exchange) -> Reply:
        """The reply of a plan that runs on the event loop."""
        if self._boundary is not None:
            return as_reply(await self._boundary(exchange))
        if self.security is not None:
            pending = exchange.authenticate()
            if pending is not None:
                await pending
        call = self.call
        answer = await call.handler(**call.arguments(exchange.arguments, exchange))
        return answer if type(answer) is Reply else as_reply(answer)

    def answer_in_thread(self, exchange: Exchange) -> Reply:
        """The reply of a plan that runs on the thread pool."""
        if self._boundary is not None:
            return as_reply(self._boundary(exchange))
        if self.security is not None and (pending := exchange.authenticate()) is not None:
            exchange.wait_for(pending)
        return exchange.invoke()


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - it is the callable object's method we ask
    )


def make_plans(
    document: Document,
    resolver: Any,
    *,
    boundary: Boundary | None,
    verifiers: Mapping[str, Verifier] | None,
    security_map: Mapping[str, Any] | None,
    threads: Threads,
    max_body_bytes: int,
) -> list[Plan]:
    """A plan for every operation; raises where the document and the handlers do not meet."""
    if document.has_security and verifiers is None and boundary is None:
        raise DocumentInvalid("the document asks for security, and nothing is given to check it")
    schemas = Schemas(document.raw)
    plans = []
    seen: set[str] = set()
    for path, method, content in document.operations():
        operation = Operation(path, method, content, document.security_schemes)
        if operation.id in seen:
            raise DocumentInvalid(f"operationId {operation.id} is there twice")
        seen.add(operation.id)
        checked = verifiers is not None and any(operation.security)
        security = Security(operation, verifiers or {}, security_map) if checked else None
        plan = Plan(
            operation,
            resolver,
            schemas,
            boundary=boundary,
            security=security,
            threads=threads,
            max_body_bytes=max_body_bytes,
        )
        plans.append(plan)
    return plans
