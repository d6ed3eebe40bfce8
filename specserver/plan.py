"""Owns what is settled at start-up about an operation, and the order in which a request is met."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from specserver.binding import Binding, HandlerCall
from specserver.document import Document, DocumentInvalid
from specserver.exchange import Exchange
from specserver.operations import Operation
from specserver.replies import Reply, as_reply
from specserver.security import Security, Verifier
from specserver.threads import Threads
from specserver.validation import Schemas

# Answers a Reply, or an awaitable of one where the boundary is asynchronous.
Boundary: TypeAlias = Callable[[Exchange], Any]

_BODILESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the plans of an app have in common."""

    resolver: Any
    boundary: Boundary | None
    verifiers: Mapping[str, Verifier] | None
    security_map: Mapping[str, Any] | None
    threads: Threads
    max_body_bytes: int
    public_document: bytes


class Plan:
    """One operation, ready to serve."""

    def __init__(self, operation: Operation, schemas: Schemas, around: Surroundings) -> None:
        self.operation = operation
        self.threads = around.threads
        self.public_document = around.public_document
        self.binding = Binding(operation, schemas)
        self.call = HandlerCall(
            operation,
            around.resolver.resolve(operation).function,
            self.binding.argument_names,
            leading=around.boundary is not None,
        )
        self.security: Security | None = None
        if around.verifiers is not None and any(operation.security):
            self.security = Security(operation, around.verifiers, around.security_map)
        self.max_body_bytes = int(operation.extension("max-body-bytes", around.max_body_bytes))
        self.reads_body = (
            operation.method not in _BODILESS_METHODS or "requestBody" in operation.document
        )
        self._boundary = around.boundary
        self.on_loop = self.call.is_async
        if around.boundary is not None:
            self.on_loop = is_async(around.boundary)

    async def answer(self, exchange: Exchange) -> Reply:
        """The reply of a plan that runs on the event loop."""
        if self._boundary is not None:
            return as_reply(await self._boundary(exchange))
        if self.security is not None:
            pending = exchange.authenticate()
            if pending is not None:
                await pending
        call = self.call
        return as_reply(await call.handler(**call.arguments(exchange.arguments, exchange)))

    def answer_in_thread(self, exchange: Exchange) -> Reply:
        """The reply of a plan that runs on the thread pool."""
        if self._boundary is not None:
            return as_reply(self._boundary(exchange))
        if self.security is not None:
            pending = exchange.authenticate()
            if pending is not None:
                exchange.wait_for(pending)
        return exchange.invoke()


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function, or an object that is called like one, is a coroutine function."""
    method = getattr(type(function), "__call__", None)  # noqa: B004 - the method is what is asked
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


def make_plans(document: Document, around: Surroundings) -> list[Plan]:
    """A plan for every operation; raises where the document and the handlers do not meet."""
    if document.has_security and around.verifiers is None and around.boundary is None:
        raise DocumentInvalid("the document asks for security, and nothing is given to check it")
    schemas = Schemas(document.raw)
    plans: dict[str, Plan] = {}
    for path, method, content in document.operations():
        operation = Operation(path, method, content, document.security_schemes)
        if operation.id in plans:
            raise DocumentInvalid(f"operationId {operation.id} is there twice")
        plans[operation.id] = Plan(operation, schemas, around)
    return list(plans.values())
