"""Owns App: a document, its handlers and a boundary, put together as an ASGI application."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from specserver.connexion_seam import (
    API,
    ConnexionMiddleware,
    LifespanMiddleware,
    SpecMiddleware,
)
from specserver.document import Document
from specserver.operations import HandlerResolver, Operation
from specserver.plan import Boundary, make_plans
from specserver.problems import RenderProblem, render_problem
from specserver.requests import Scope
from specserver.runtime import Receive, Runtime, Send
from specserver.security import Verifier
from specserver.threads import Threads

Hook = Callable[[], Any]


class App(ConnexionMiddleware):  # type: ignore[misc]  # connexion is untyped
    """An ASGI app on Connexion's specification, resolver, security table and middleware stack.

    Everything is checked and compiled here: an App that could be made can serve each operation.
    """

    def __init__(
        self,
        document: Path | str | dict[str, Any],
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
        on_startup: Iterable[Hook] = (),
        on_shutdown: Iterable[Hook] = (),
        extra_routes: Mapping[str, Any] | None = None,
        serve_docs: bool = True,
        public_extensions: Iterable[str] = (),
        middlewares: Iterable[Any] = (),
        base_path: str | None = None,
    ) -> None:
        self.document: Document = Document.load(document)
        self.state = state
        self.threads = Threads(threads)
        self.problems = problems or partial(render_problem, type_prefix=problem_type_prefix)
        self._hooks = (list(on_startup), list(on_shutdown))
        self._runtime_options = {
            "boundary": boundary,
            "verifiers": security,
            "threads": self.threads,
            "max_body_bytes": max_body_bytes,
            "problems": self.problems,
            "app_state": state,
            "extra_routes": dict(extra_routes or {}),
            "validate_responses": validate_responses,
        }
        super().__init__(
            _Endpoint(),
            lifespan=self._lifespan,
            middlewares=[*middlewares, LifespanMiddleware, _Serving],
            resolver=handlers if hasattr(handlers, "resolve") else HandlerResolver(handlers),
        )
        self.add_api(self.document, base_path=base_path, **self._runtime_options)
        # At once and not at the first request, so that what is wrong is known at start-up.
        self.app, self.middleware_stack = self._build_middleware_stack()
        self.operations: dict[str, Operation] = {
            plan.operation.id: plan.operation for plan in self._serving.plans
        }

    def add_api(self, specification: Document, **options: Any) -> None:
        """Connexion's own reads the document again, as OpenAPI 3.0."""
        base_path = options.pop("base_path", None)
        merged = {**self.options.__dict__, **options}
        self.apis.append(API(specification, base_path=base_path, **merged))

    @property
    def _serving(self) -> "_Serving":
        return next(layer for layer in self.middleware_stack if isinstance(layer, _Serving))

    @asynccontextmanager
    async def _lifespan(self, _app: Any) -> AsyncIterator[None]:
        startup, shutdown = self._hooks
        for hook in startup:
            await _call(hook)
        try:
            yield
        finally:
            for hook in shutdown:
                await _call(hook)
            self.threads.stop()


class _Serving(SpecMiddleware):  # type: ignore[misc]  # connexion is untyped
    """The one layer of Connexion's stack that replaces its routing, security and validation."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.plans: list[Any] = []

    def add_api(
        self,
        specification: Document,
        *,
        resolver: Any,
        boundary: Boundary | None,
        verifiers: Mapping[str, Verifier] | None,
        security_map: Mapping[str, Any] | None,
        threads: Threads,
        max_body_bytes: int,
        base_path: str | None,
        problems: RenderProblem,
        app_state: Any,
        extra_routes: Mapping[str, Any],
        validate_responses: bool,
        **_connexion: Any,
    ) -> None:
        self.plans = make_plans(
            specification,
            resolver,
            boundary=boundary,
            verifiers=verifiers,
            security_map=security_map,
            threads=threads,
            max_body_bytes=max_body_bytes,
        )
        self.runtime = Runtime(
            self.plans,
            base_path=specification.base_path if base_path is None else base_path,
            problems=problems,
            threads=threads,
            app_state=app_state,
            extra_routes=extra_routes,
            checks=None,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.runtime(scope, receive, send)
        else:
            await self.app(scope, receive, send)


class _Endpoint:
    """The end of the stack, which only a websocket reaches: it is turned away."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})


async def _call(hook: Hook) -> None:
    outcome = hook()
    if inspect.isawaitable(outcome):
        await outcome
