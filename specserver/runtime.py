"""Owns the way of a request over ASGI: from the scope to the last byte of the answer."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import structlog
from structlog.contextvars import bind_contextvars

from specserver.exchange import Exchange, Receive
from specserver.plan import Plan
from specserver.problems import (
    InternalError,
    MethodNotAllowed,
    NotFound,
    PollAgain,
    Problem,
    RenderProblem,
    TooLarge,
)
from specserver.replies import Reply
from specserver.requests import Request, Scope, request_id_of
from specserver.routing import PathTree
from specserver.streaming import send_stream
from specserver.threads import Threads

Send = Callable[[Any], Awaitable[None]]
Finish = Callable[[Exchange, Reply], Reply]

log = structlog.get_logger("specserver")


class ClientGone(Exception):  # noqa: N818 - it is no error of ours
    """The client closed the connection before it was answered."""


class Route:
    """A path and the plans of its methods."""

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}

    def settle(self) -> None:
        """HEAD is answered where GET is; OPTIONS says what is answered."""
        self.allow = ", ".join(sorted({*self.plans, "OPTIONS", *self._head()}))
        if "GET" in self.plans:
            self.plans.setdefault("HEAD", self.plans["GET"])

    def _head(self) -> list[str]:
        return ["HEAD"] if "GET" in self.plans else []


class Runtime:
    """The innermost ASGI app: routes, reads, asks the plan, and sends."""

    def __init__(
        self,
        plans: Iterable[Plan],
        *,
        base_path: str,
        problems: RenderProblem,
        threads: Threads,
        app_state: Any,
        extra_routes: Mapping[str, Any],
        checks: Callable[[Exchange, Reply], None] | None,
    ) -> None:
        routes: dict[str, Route] = {}
        for plan in plans:
            path = base_path + plan.operation.path
            routes.setdefault(path, Route()).plans[plan.operation.method] = plan
        for route in routes.values():
            route.settle()
        self._tree = PathTree(routes.items())
        self._problems = problems
        self._threads = threads
        self._app_state = app_state
        self._exact = {p: app for p, app in extra_routes.items() if not p.endswith("/") or p == "/"}
        self._prefixes = [(p, app) for p, app in extra_routes.items() if p not in self._exact]
        self._checks = checks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        request_id = request_id_of(request.headers)
        bind_contextvars(request_id=request_id)
        try:
            found = self._find(scope)
            if found is None:
                extra = self._extra(scope)
                if extra is not None:
                    await extra(scope, receive, _with_request_id(send, request_id))
                    return
                raise NotFound("no such path", code="no_such_path")
            reply = await self._answer(request, request_id, found, receive)
        except Problem as problem:
            reply = self._render(problem, request_id)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - every failure ends in an answer
            log_failure("request failed", error, method=request.method, path=request.path)
            reply = self._render(InternalError(), request_id)
        await self._send(reply, request_id, request.method == "HEAD", receive, send)

    def _find(self, scope: Scope) -> tuple[Route, dict[str, str]] | None:
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        raw: bytes | None = scope.get("raw_path")
        if raw is not None and b"%" in raw:
            text = raw.partition(b"?")[0].decode("latin-1")
            return self._tree.find_raw(text.removeprefix(root) if root else text)
        if root and path.startswith(root):
            path = path[len(root) :]
        return self._tree.find(path)

    def _extra(self, scope: Scope) -> Any:
        path: str = scope["path"]
        if path in self._exact:
            return self._exact[path]
        return next((app for prefix, app in self._prefixes if path.startswith(prefix)), None)

    async def _answer(
        self,
        request: Request,
        request_id: str,
        found: tuple[Route, dict[str, str]],
        receive: Receive,
    ) -> Reply:
        route, path = found
        plan = route.plans.get(request.method)
        if plan is None:
            if request.method == "OPTIONS":
                return Reply(204, None, {"Allow": route.allow})
            raise MethodNotAllowed(
                f"{request.method} is not answered here", headers={"Allow": route.allow}
            )
        body = await read_body(request, plan.max_body_bytes, receive) if plan.reads_body else b""
        exchange = Exchange(plan, request, path, request_id, self._app_state, body, receive)
        while True:
            try:
                if plan.on_loop:
                    reply = await plan.answer(exchange)
                else:
                    reply = await self._threads.run(plan.answer_in_thread, exchange)
                break
            except PollAgain as again:
                await _sleep(again.after_s, exchange)
                exchange.attempt += 1
        if self._checks is not None:
            self._checks(exchange, reply)
        return reply

    def _render(self, problem: Problem, request_id: str) -> Reply:
        return self._problems(problem, request_id)

    async def _send(
        self, reply: Reply, request_id: str, head: bool, receive: Receive, send: Send
    ) -> None:
        try:
            body = reply.encode()
            headers = raw_headers(reply, request_id, len(body))
        except Exception as error:  # noqa: BLE001 - every failure ends in an answer
            log_failure("reply cannot be encoded", error, status=reply.status)
            reply = self._render(InternalError(), request_id)
            body = reply.encode()
            headers = raw_headers(reply, request_id, len(body))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        if reply.chunks is not None:
            await send_stream(reply.chunks, head, self._threads, receive, send)
        else:
            await send({"type": "http.response.body", "body": b"" if head else body})


def log_failure(event: str, error: Exception, **facts: Any) -> None:
    """Logs the traceback as text: renderers that show local variables would show credentials."""
    log.error(event, exception="".join(traceback.format_exception(error)), **facts)


async def read_body(request: Request, limit: int, receive: Receive) -> bytes:
    """The whole body; raises 413 as soon as it is known to be too large."""
    length = request.headers.raw(b"content-length")
    if length is not None and length.isdigit() and int(length) > limit:
        raise too_large(limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        chunk = event.get("body", b"")
        if not event.get("more_body", False) and not chunks:
            if len(chunk) > limit:
                raise too_large(limit)
            return bytes(chunk)
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        chunks.append(chunk)
        if not event.get("more_body", False):
            return b"".join(chunks)


def too_large(limit: int) -> TooLarge:
    # The rest of the body is unread, so the connection is of no more use.
    return TooLarge(
        f"the body is larger than {limit} bytes", headers={"Connection": "close"}, limit_bytes=limit
    )


async def _sleep(after_s: float, exchange: Exchange) -> None:
    """Waits on the event loop, holding no thread; raises ClientGone when nobody waits with us."""
    gone = asyncio.ensure_future(exchange.disconnected())
    try:
        done, _ = await asyncio.wait({gone}, timeout=after_s)
    finally:
        gone.cancel()
    if done:
        raise ClientGone


_FIXED = [(b"x-content-type-options", b"nosniff")]
_NO_STORE = (b"cache-control", b"no-store")
_BODILESS = frozenset({204, 205, 304})


def raw_headers(reply: Reply, request_id: str, length: int) -> list[tuple[bytes, bytes]]:
    raw = [(b"x-request-id", request_id.encode()), *_FIXED]
    stored = False
    for name, value in reply.headers.items():
        key = name.lower()
        stored = stored or key == "cache-control"
        for single in value if isinstance(value, list) else [value]:
            if "\r" in single or "\n" in single or "\0" in single:
                raise ValueError(f"header {name} holds a line break")
            raw.append((key.encode("latin-1"), single.encode("latin-1")))
    if not stored:
        raw.append(_NO_STORE)
    if reply.status in _BODILESS:
        return raw
    if reply.body is not None or reply.chunks is not None:
        raw.append((b"content-type", reply.media_type.encode("latin-1")))
    if reply.chunks is None:
        raw.append((b"content-length", b"%d" % length))
    return raw


def _with_request_id(send: Send, request_id: str) -> Send:
    async def marked(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (n, v) for n, v in message.get("headers", ()) if n.lower() != b"x-request-id"
            ]
            message = {**message, "headers": [*headers, (b"x-request-id", request_id.encode())]}
        await send(message)

    return marked
