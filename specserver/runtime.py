"""Owns how a request is served over ASGI: from the scope to the last byte of the answer."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

import structlog
from structlog.contextvars import bind_contextvars

from specserver import tracing
from specserver.bodies import ClientGone, read_body
from specserver.exchange import Exchange, Receive
from specserver.operations import Operation
from specserver.plan import OperationPlan
from specserver.problems import (
    InternalError,
    MethodNotAllowed,
    NotFound,
    PollAgain,
    Problem,
    RenderProblem,
)
from specserver.reference import StaticPages
from specserver.replies import Chunk, Chunks, Reply, raw_headers
from specserver.requests import Request, Scope, request_id_of
from specserver.routing import PathTree
from specserver.shares import Gone, Shares
from specserver.streaming import (
    PEER,
    Held,
    Peer,
    Stalled,
    close,
    on_loop,
    send_stream,
    until_gone,
)
from specserver.threads import Threads

Send: TypeAlias = Callable[[Any], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
Checks: TypeAlias = Callable[[Operation, Reply], None]
# Counts a request to no operation, which no boundary sees; raises where its sender made too many.
ChargeUnrouted: TypeAlias = Callable[[Request], None]

# In the scope of a request for a page or to no operation, for what is around the app.
UNROUTED = "specserver.unrouted"
# The id of the operation that the request is for.
OPERATION = "specserver.operation"
# So much of a path is told in the log.
_PATH_MAX = 256

log = structlog.get_logger("specserver")


class PathItem:
    """A path, the plans of its methods, and what OPTIONS and a 405 say of them."""

    __slots__ = ("allow", "plans")

    def __init__(self, plans: Mapping[str, OperationPlan]) -> None:
        self.plans = dict(plans)
        if "GET" in self.plans:
            self.plans.setdefault("HEAD", self.plans["GET"])
        self.allow = ", ".join(sorted({*self.plans, "OPTIONS"}))


class Runtime:
    """The innermost ASGI app: routes, reads, asks the plan, and sends."""

    def __init__(
        self,
        plans: Iterable[OperationPlan],
        *,
        base_path: str,
        problems: RenderProblem,
        threads: Threads,
        app_state: Any,
        pages: StaticPages | None,
        extra_routes: Mapping[str, AsgiApp],
        checks: Checks | None,
        shares: Shares | None,
        charge_unrouted: ChargeUnrouted | None = None,
    ) -> None:
        by_path: dict[str, dict[str, OperationPlan]] = {}
        for plan in plans:
            path = base_path + plan.operation.path
            by_path.setdefault(path, {})[plan.operation.method] = plan
        self._tree = PathTree((path, PathItem(methods)) for path, methods in by_path.items())
        self._problems = problems
        self._threads = threads
        self._shares = shares
        self._charge_unrouted = charge_unrouted
        self._app_state = app_state
        self._pages = pages
        self._exact = dict(extra_routes)
        self._prefixes = [(p, app) for p, app in extra_routes.items() if p.endswith("/")]
        self._checks = checks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        request_id = request_id_of(request.headers)
        bind_contextvars(request_id=request_id)
        try:
            path = _path_below_root(scope)
            found = self._find(scope, path)
            if found is None:
                extra = self._extra(path)
                if extra is not None:
                    await extra(scope, receive, _with_request_id(send, request_id))
                    return
                reply = self._undocumented(request, path, request_id)
            else:
                reply = await self._answer(request, request_id, found, receive)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - every failure ends in an answer
            self._log("request failed", error, method=request.method, path=request.path[:_PATH_MAX])
            reply = self._problems(InternalError(), request_id)
        try:
            await self._send(reply, request_id, request, receive, send)
        finally:
            await close(reply.chunks)

    def _find(self, scope: Scope, path: str) -> tuple[PathItem, dict[str, str]] | None:
        raw: bytes | None = scope.get("raw_path")
        if raw is None or b"%" not in raw:
            return self._tree.find(path)
        text = raw.partition(b"?")[0].decode("latin-1")
        return self._tree.find_raw(text.removeprefix(scope.get("root_path", "")))

    def _extra(self, path: str) -> AsgiApp | None:
        found = self._exact.get(path)
        if found is not None or not self._prefixes:
            return found
        return next((app for prefix, app in self._prefixes if path.startswith(prefix)), None)

    def _undocumented(self, request: Request, path: str, request_id: str) -> Reply:
        try:
            self._charge(request)
            if self._pages is not None and path in self._pages:
                return self._pages.answer(request.scope, path)
            raise NotFound("no such path", code="no_such_path")
        except Problem as problem:
            return self._problems(problem, request_id)

    def _unknown_method(self, request: Request, route: PathItem, request_id: str) -> Reply:
        allow = {"Allow": route.allow}
        try:
            self._charge(request)
            if request.method == "OPTIONS":
                return Reply(204, None, allow)
            raise MethodNotAllowed(f"{request.method} is not allowed here", headers=allow)
        except Problem as problem:
            return self._problems(problem, request_id)

    def _charge(self, request: Request) -> None:
        request.scope[UNROUTED] = True
        if self._charge_unrouted is not None:
            self._charge_unrouted(request)

    async def _answer(
        self,
        request: Request,
        request_id: str,
        found: tuple[PathItem, dict[str, str]],
        receive: Receive,
    ) -> Reply:
        route, path = found
        plan = route.plans.get(request.method)
        if plan is None:
            return self._unknown_method(request, route, request_id)
        about = (plan, request, path, request_id)
        exchange = Exchange(*about, self._app_state, receive, self._in_turn)
        operation = request.scope[OPERATION] = plan.operation.id
        parent = request.headers.get(tracing.HEADER)
        try:
            told = {"http.request.method": request.method}
            with tracing.span(operation, "server", parent, **told):
                reply = await self._read_and_attempt(plan, exchange, receive)
        except Problem as problem:
            reply = self._problems(problem, request_id)
        finally:
            exchange.end()
        if self._checks is not None:
            self._checks(plan.operation, reply)
        return reply if reply.chunks is None else self._with_place(exchange, reply, reply.chunks)

    def _with_place(self, exchange: Exchange, reply: Reply, chunks: Chunks) -> Reply:
        """The reply with a place among those that are streamed, or the problem that there is none.

        Nothing may fail between this and `close`, which leaves the place.
        """
        reply.chunks = on_loop(chunks, exchange.in_turn)
        if self._shares is None or exchange.request.method == "HEAD":
            return reply
        try:
            leave = self._shares.stream(exchange, live=reply.is_live)
        except Problem as problem:
            return self._problems(problem, exchange.request_id)
        reply.chunks = Held(reply.chunks, leave)
        return reply

    async def _read_and_attempt(
        self, plan: OperationPlan, exchange: Exchange, receive: Receive
    ) -> Reply:
        await plan.admit(exchange)
        if not plan.reads_body:
            return await self._attempt(plan, exchange)
        headers, limit = exchange.request.headers, plan.max_body_bytes
        if self._shares is None:
            exchange.body_bytes = await read_body(headers, limit, receive)
            return await self._attempt(plan, exchange)
        share = self._shares.body(exchange)
        try:
            exchange.body_bytes = await read_body(headers, limit, receive, share.grow)
            return await self._attempt(plan, exchange)
        finally:
            share.end()

    async def _attempt(self, plan: OperationPlan, exchange: Exchange) -> Reply:
        try:
            return await self._try_once(plan, exchange)
        except PollAgain as again:
            after_s = again.after_s
        shares = self._shares
        if shares is None:
            return await self._poll(plan, exchange, after_s)
        with shares.long_poll(exchange):
            return await self._poll(plan, exchange, after_s)

    async def _poll(self, plan: OperationPlan, exchange: Exchange, after_s: float) -> Reply:
        while True:
            await _sleep(after_s, exchange)
            exchange.attempt += 1
            try:
                return await self._try_once(plan, exchange)
            except PollAgain as again:
                after_s = again.after_s

    async def _try_once(self, plan: OperationPlan, exchange: Exchange) -> Reply:
        if plan.on_loop:
            return await plan.answer(exchange)
        work = partial(plan.answer_in_thread, exchange)
        # All of the body has been read: what is received next is that the client is gone.
        reply: Reply = await self._in_turn(exchange, work, exchange.disconnected)
        return reply

    async def _in_turn(
        self, exchange: Exchange, work: Callable[[], Any], gone: Gone | None = None
    ) -> Any:
        running = partial(self._threads.run, work)
        shares = self._shares
        return await (running() if shares is None else shares.turn(exchange, running, gone))

    async def _send(
        self, reply: Reply, request_id: str, request: Request, receive: Receive, send: Send
    ) -> None:
        head = request.method == "HEAD"
        try:
            body = reply.encode()
            headers = raw_headers(reply, request_id, len(body))
        except Exception as error:  # noqa: BLE001 - every failure ends in an answer
            self._log("reply cannot be encoded", error, status=reply.status)
            reply = self._problems(InternalError(), request_id)
            body = reply.encode()
            headers = raw_headers(reply, request_id, len(body))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        if reply.chunks is None or head:
            await send({"type": "http.response.body", "body": b"" if head else body})
            return
        peer: Peer | None = request.scope.get(PEER)
        ending = peer.ending if peer is not None and reply.is_live else None
        chunks = cast("AsyncIterator[Chunk]", reply.chunks)
        try:
            await send_stream(chunks, receive, send, ending)
        except (Problem, Stalled) as reason:
            # No failure of ours. Whoever may not go on, or takes nothing, sees that it is broken.
            log.info("response cut off", path=request.path[:_PATH_MAX], reason=str(reason))
            if peer is None:
                raise
            peer.cut()
            await until_gone(receive)

    @staticmethod
    def _log(event: str, error: Exception, **facts: Any) -> None:
        # The traceback goes in as text: a renderer that shows local variables shows credentials.
        log.error(event, exception="".join(traceback.format_exception(error)), **facts)


def _path_below_root(scope: Scope) -> str:
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) if root else path


async def _sleep(after_s: float, exchange: Exchange) -> None:
    """Waits on the event loop, holding no thread; raises ClientGone when nobody waits with us."""
    gone = asyncio.ensure_future(exchange.disconnected())
    try:
        done, _ = await asyncio.wait({gone}, timeout=after_s)
    finally:
        gone.cancel()
    if done:
        raise ClientGone


def _with_request_id(send: Send, request_id: str) -> Send:
    async def marked(event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            headers = [(n, v) for n, v in event.get("headers", ()) if n.lower() != b"x-request-id"]
            event = {**event, "headers": [*headers, (b"x-request-id", request_id.encode())]}
        await send(event)

    return marked
