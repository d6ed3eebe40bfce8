"""Owns Exchange: one request on its way, as the boundary holds it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from specserver.operations import Operation
from specserver.problems import Problem
from specserver.replies import Reply, as_reply
from specserver.requests import Request

if TYPE_CHECKING:
    from specserver.plan import OperationPlan

Receive = Callable[[], Awaitable[Any]]
Found = TypeVar("Found")


class Exchange:
    """Kept across attempts: `validate` runs once, and `state` is the boundary's to fill."""

    __slots__ = (
        "_arguments",
        "_endings",
        "_loop",
        "_plan",
        "_receive",
        "_refusal",
        "_turn",
        "app_state",
        "attempt",
        "body_bytes",
        "path",
        "principal",
        "request",
        "request_id",
        "scheme",
        "started_at",
        "state",
    )

    def __init__(
        self,
        plan: "OperationPlan",
        request: Request,
        path: dict[str, str],
        request_id: str,
        app_state: Any,
        receive: Receive,
        turn: Callable[["Exchange", Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._plan = plan
        self._turn = turn
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._arguments: dict[str, Any] | None = None
        self._endings: tuple[Callable[[], None], ...] = ()
        self._refusal: Problem | None = None
        self.request = request
        self.path = path
        self.request_id = request_id
        self.app_state = app_state
        self.body_bytes = b""
        self.started_at = time.monotonic()
        self.attempt = 0
        self.state: dict[str, Any] = {}
        self.principal: Any = None
        self.scheme: str | None = None

    def __repr__(self) -> str:
        return f"<Exchange {self.request_id} of {self._plan.operation.id}>"

    @property
    def operation(self) -> Operation:
        return self._plan.operation

    @property
    def operations(self) -> Mapping[str, Operation]:
        """All that the document has, by their ids."""
        return self._plan.operations

    def validate(self) -> None:
        """Checks and binds the request; raises the same Problem each time it is asked."""
        if self._arguments is not None:
            return
        if self._refusal is not None:
            raise self._refusal
        try:
            self._arguments = self._plan.binding.bind(self.request, self.path, self.body_bytes)
        except Problem as refusal:
            self._refusal = refusal
            raise

    @property
    def arguments(self) -> dict[str, Any]:
        """Every bound argument by its Python name, `body` among them."""
        self.validate()
        return cast("dict[str, Any]", self._arguments)

    def invoke(self, *first: Any, **given: Any) -> Reply:
        """Runs the handler with `first` and the arguments it names, those in `given` among them.

        An asynchronous handler is waited for when this is called on a pool thread; on the event
        loop this gives its coroutine, and `invoke_async` is the better name to call.
        """
        plan = self._plan
        arguments = plan.call.arguments(self.arguments | given, self, len(first))
        answer = plan.handler(*first, **arguments)
        if not plan.is_async:
            return as_reply(answer)
        finished = _finish(answer)
        return cast("Reply", finished if _on_loop(self._loop) else self.wait_for(finished))

    def wait_for(self, pending: Coroutine[Any, Any, Any]) -> Any:
        """From a pool thread: runs a coroutine on the event loop and waits for its result."""
        return asyncio.run_coroutine_threadsafe(pending, self._loop).result()

    async def invoke_async(self, *first: Any, **given: Any) -> Reply:
        """`invoke` for an asynchronous boundary; a synchronous handler runs on the thread pool."""
        plan = self._plan
        if not plan.is_async:
            return cast("Reply", await plan.threads.run(partial(self.invoke, *first, **given)))
        arguments = plan.call.arguments(self.arguments | given, self, len(first))
        return as_reply(await plan.handler(*first, **arguments))

    @property
    def public_document(self) -> bytes:
        """What `/openapi.json` answers, for documents that describe that path themselves."""
        return self._plan.public_document

    def authenticate(self) -> Any:
        """Sets `principal` and `scheme` by the app's verifiers; await what an async one gives."""
        security = self._plan.security
        if security is None:
            return None
        caller = security.authenticate(self.request)
        if hasattr(caller, "__await__"):
            return self._authenticated(cast("Awaitable[Any]", caller))
        self.principal, self.scheme = cast("tuple[Any, str]", caller)
        return None

    async def _authenticated(self, caller: Awaitable[Any]) -> None:
        self.principal, self.scheme = await caller

    async def in_turn(self, work: Callable[[], Found]) -> Found:
        """On the event loop: runs the function on a thread, when one is the caller's to take.

        Whoever stops waiting for it leaves the thread to its work, and the caller's turn with it.
        """
        task = asyncio.ensure_future(self._turn(self, work))
        task.add_done_callback(_look_at)
        return cast("Found", await asyncio.shield(task))

    def at_end(self, ending: Callable[[], None]) -> None:
        """Called once the request has its answer, or never gets one: no place is held for long."""
        self._endings = (*self._endings, ending)

    def end(self) -> None:
        for ending in self._endings:
            ending()

    async def disconnected(self) -> None:
        """Returns when the client is gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _look_at(task: "asyncio.Future[Any]") -> None:
    """Or a failure that nobody waits for any more would be logged as forgotten."""
    if not task.cancelled():
        task.exception()


def _on_loop(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def _finish(answer: Awaitable[Any]) -> Reply:
    return as_reply(await answer)
