"""Owns App: a document, its handlers and a boundary, put together as an ASGI application."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from specserver.connexion_seam import (
    API,
    ConnexionMiddleware,
    LifespanMiddleware,
    SpecMiddleware,
)
from specserver.document import Document
from specserver.exchange import Receive
from specserver.operations import HandlerResolver, Operation
from specserver.plan import Boundary, OperationPlan, PlanContext, make_plans
from specserver.problems import RenderProblem, render_problem
from specserver.reference import StaticPages
from specserver.replies import Reply
from specserver.requests import Scope
from specserver.response_checks import ReplyChecks
from specserver.runtime import AsgiApp, Runtime, Send
from specserver.security import Verifier
from specserver.shares import Shares
from specserver.threads import Threads

Hook = Callable[[], Any]


class App(ConnexionMiddleware):  # type: ignore[misc]  # connexion is untyped
    """An ASGI app on Connexion's specification, resolver, security table and middleware stack.

    Everything is checked and compiled here: an App that could be made can serve each operation.
    `checked` tells that the document was held to OpenAPI 3.1 before, as by a build.
    """

    def __init__(
        self,
        document: Document | Path | str | dict[str, Any],
        *,
        handlers: Any,
        boundary: Boundary | None = None,
        security: Mapping[str, Verifier] | None = None,
        state: Any = None,
        problems: RenderProblem | None = None,
        problem_type_prefix: str = "urn:problem:",
        validate_responses: bool = False,
        max_body_bytes: int = 1_048_576,
        threads: int = 16,
        waiting: int = 1_024,
        on_startup: Iterable[Hook] = (),
        on_shutdown: Iterable[Hook] = (),
        extra_routes: Mapping[str, AsgiApp] | None = None,
        serve_docs: bool = True,
        front_page: Reply | None = None,
        public_extensions: Iterable[str] = (),
        checked: bool = False,
        shares: Shares | None = None,
    ) -> None:
        self.document: Document = Document.load(document, checked=checked)
        self.public_document = self.document.public(public_extensions)
        self.state = state
        self.threads = Threads(threads, waiting)
        self.shares = shares
        self.on_startup = list(on_startup)
        self.on_shutdown = list(on_shutdown)
        super().__init__(
            _end,
            lifespan=self._lifespan,
            middlewares=[LifespanMiddleware, _Serving],
            resolver=handlers if hasattr(handlers, "resolve") else HandlerResolver(handlers),
        )
        around = PlanContext(
            resolver=self.options.resolver,
            boundary=boundary,
            verifiers=security,
            security_map=self.options.security_map,
            threads=self.threads,
            max_body_bytes=max_body_bytes,
            public_document=orjson.dumps(self.public_document),
        )
        self.add_api(
            self.document,
            around=around,
            problems=problems or partial(render_problem, type_prefix=problem_type_prefix),
            app_state=state,
            pages=StaticPages(self.public_document, docs=True, front=front_page)
            if serve_docs
            else None,
            extra_routes=dict(extra_routes or {}),
            validate_responses=validate_responses,
            shares=shares,
            charge_unrouted=getattr(boundary, "charge_unrouted", None),
        )
        # At once and not at the first request, so that what is wrong is known at start-up.
        self.app, self.middleware_stack = self._build_middleware_stack()
        serving = next(layer for layer in self.middleware_stack if isinstance(layer, _Serving))
        self.operations: dict[str, Operation] = {p.operation.id: p.operation for p in serving.plans}

    def add_api(self, specification: Document, **options: Any) -> None:
        """Registers the document; Connexion's own would read it again, as OpenAPI 3.0."""
        self.apis.append(
            API(
                specification,
                base_path=specification.base_path,
                **options,
            )
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Any) -> AsyncIterator[None]:
        for hook in self.on_startup:
            await _call(hook)
        try:
            yield
        finally:
            for hook in self.on_shutdown:
                await _call(hook)
            self.threads.stop()


class _Serving(SpecMiddleware):  # type: ignore[misc]  # connexion is untyped
    """The one layer of Connexion's stack that replaces its routing, security and validation."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app
        self.plans: list[OperationPlan] = []

    def add_api(
        self,
        specification: Document,
        *,
        around: PlanContext,
        validate_responses: bool,
        **options: Any,
    ) -> None:
        self.plans = make_plans(specification, around)
        checks = ReplyChecks(specification.schemas).check if validate_responses else None
        self.runtime = Runtime(self.plans, threads=around.threads, checks=checks, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.runtime(scope, receive, send)
        else:
            await self.app(scope, receive, send)


async def _end(scope: Scope, _receive: Receive, send: Send) -> None:
    """The end of the stack, which only a websocket reaches: it is turned away."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})


async def _call(hook: Hook) -> None:
    outcome = hook()
    if inspect.isawaitable(outcome):
        await outcome
