"""Owns what is settled at start-up about an operation, and the order in which a request is met."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from specserver.binding import Binding, Bindings
from specserver.calls import call_of
from specserver.document import Document, DocumentInvalid
from specserver.exchange import Exchange
from specserver.operations import Operation
from specserver.replies import Reply, as_reply
from specserver.security import Security, Verifier
from specserver.threads import Threads

# Answers a Reply, or an awaitable of one where the boundary is asynchronous.
Boundary: TypeAlias = Callable[[Exchange], Any]

_BODILESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


@dataclass(frozen=True, kw_only=True)
class PlanContext:
    """What the plans of an app have in common."""

    resolver: Any
    boundary: Boundary | None
    verifiers: Mapping[str, Verifier] | None
    security_map: Mapping[str, Any] | None
    threads: Threads
    max_body_bytes: int
    public_document: bytes


class OperationPlan:
    """One operation, ready to serve."""

    __slots__ = (
        "_admit",
        "_boundary",
        "binding",
        "call",
        "handler",
        "is_async",
        "max_body_bytes",
        "on_loop",
        "operation",
        "operations",
        "public_document",
        "reads_body",
        "security",
        "threads",
    )

    def __init__(
        self,
        operation: Operation,
        binding: Binding,
        security: Security | None,
        around: PlanContext,
        operations: Mapping[str, Operation],
    ) -> None:
        self.operation = operation
        self.operations = operations
        self.threads = around.threads
        self.public_document = around.public_document
        self.binding = binding
        self.handler: Callable[..., Any] = around.resolver.resolve(operation).function
        self.is_async = is_async(self.handler)
        leading = getattr(around.boundary, "leading", None) if around.boundary else 0
        given = _given(operation, binding.argument_names, around.boundary)
        self.call = call_of(operation.id, self.handler, given, leading=leading)
        self.security = security
        self.max_body_bytes = int(operation.extension("max-body-bytes", around.max_body_bytes))
        self.reads_body = (
            operation.method not in _BODILESS_METHODS or "requestBody" in operation.document
        )
        self._boundary = around.boundary
        self._admit: Callable[[Exchange], None] | None = getattr(around.boundary, "admit", None)
        self.on_loop = is_async(around.boundary) if around.boundary else self.is_async

    async def admit(self, exchange: Exchange) -> None:
        """Raises for whoever is refused by the head alone, before any of the body is held.

        Verifiers of a plan that runs on the thread pool may block, and are asked there.
        """
        if self._admit is not None:
            self._admit(exchange)
        elif self.security is not None and self.on_loop:
            pending = exchange.authenticate()
            if pending is not None:
                await pending

    async def answer(self, exchange: Exchange) -> Reply:
        """The reply of a plan that runs on the event loop, to who was admitted."""
        if self._boundary is not None:
            return as_reply(await self._boundary(exchange))
        if exchange.attempt:
            await self.admit(exchange)  # what was valid then may not be any more
        arguments = self.call.arguments(exchange.arguments, exchange)
        return as_reply(await self.handler(**arguments))

    def answer_in_thread(self, exchange: Exchange) -> Reply:
        """The reply of a plan that runs on the thread pool."""
        if self._boundary is not None:
            return as_reply(self._boundary(exchange))
        if self.security is not None:
            pending = exchange.authenticate()
            if pending is not None:
                exchange.wait_for(pending)
        return exchange.invoke()


def _given(operation: Operation, bound: set[str], boundary: Boundary | None) -> set[str]:
    """What a handler can name: a boundary with `arguments_of` may put others in their place."""
    arguments_of = getattr(boundary, "arguments_of", None)
    return bound if arguments_of is None else set(arguments_of(operation, frozenset(bound)))


def _security(operation: Operation, around: PlanContext) -> Security | None:
    if around.verifiers is None or not any(operation.security):
        return None
    return Security(operation, around.verifiers, around.security_map)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function, or an object that is called like one, is a coroutine function."""
    method = getattr(type(function), "__call__", None)  # noqa: B004 - the method is what is asked
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


def make_plans(document: Document, around: PlanContext) -> list[OperationPlan]:
    """A plan for every operation; raises where the document and the handlers do not meet."""
    if document.has_security and around.verifiers is None and around.boundary is None:
        raise DocumentInvalid(
            "the document requires security, but neither security nor boundary was passed"
        )
    bindings = Bindings(document.schemas)
    securities: dict[str, Security | None] = {}
    plans: dict[str, OperationPlan] = {}
    operations: dict[str, Operation] = {}
    for path, method, content in document.operations():
        operation = Operation(path, method, content, document.security_schemes)
        if operation.id in plans:
            raise DocumentInvalid(f"operationId {operation.id} is used twice")
        # Most operations ask for the same, and are checked by one and the same object.
        asked = repr(operation.security)
        if asked not in securities:
            securities[asked] = _security(operation, around)
        operations[operation.id] = operation
        plans[operation.id] = OperationPlan(
            operation, bindings.of(operation), securities[asked], around, operations
        )
    return list(plans.values())
