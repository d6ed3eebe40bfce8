"""The account pages within the API's process, and the API as they ask it: as any client would.

What a page asks is an HTTP request of its own to the same app, from the address of the browser:
its rights, limits and audit entries are those of the API, and the pages have none.
"""

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import structlog

from control.boundary.addresses import Proxies, levels
from menagerie.settings import Settings
from pages import alone, asgi
from pages.account.api import ENVIRON, ApiAnswer
from specserver import Problem, Request
from specserver.bodies import read_body
from specserver.runtime import UNROUTED, AsgiApp, Send
from specserver.shares import Stranger
from specserver.turns import Turns

ROOT: Final = "/account"
THREADS: Final = 16
THREADS_OF_ONE: Final = 4
WAITING_OF_ONE: Final = 16
WAITING: Final = 256
BODY_BYTES_MAX: Final = 16_384
# A response of SAML of 256 KiB as browsers send it in a form: in base64, its signs escaped.
RESPONSE_BYTES_MAX: Final = 400 << 10
_ACS: Final = re.compile(rf"{ROOT}/sso/ssoc_[0-9A-Z]{{26}}/acs")
_API_ANSWERS_WITHIN_S: Final = 60
# What the API is told of the browser, beside its address.
_PASSED_ON: Final = frozenset({b"host", b"user-agent", b"x-forwarded-for"})


class AccountPages:
    """An ASGI app below ROOT. `api` is the app that it asks, which is set when that is made."""

    api: AsgiApp

    def __init__(self, settings: Settings, charge: Callable[[Request], None]) -> None:
        base = urlsplit(settings.api_url)
        self._is_secure = base.scheme == "https"
        # Behind a proxy that has the service below a path, links begin with that.
        self._root = base.path.rstrip("/") + ROOT
        self._scheme = base.scheme
        self._proxies = Proxies(settings.trusted_proxies)
        self._charge = charge
        self._turns = Turns(THREADS, THREADS_OF_ONE, waiting_of_one=WAITING_OF_ONE, waiting=WAITING)
        self._threads = ThreadPoolExecutor(THREADS, "pages")

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        scope[UNROUTED] = True
        request = Request(scope)
        try:
            self._charge(request)
            body = await read_body(request.headers, self._bytes_max(scope, request), receive)
            status, headers, content = await self._answer(scope, request, body)
        except Problem as problem:
            status, headers, content = _notice(problem)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, scope: Any, request: Request, body: bytes) -> asgi.Written:
        forwarded_for = request.headers.get("x-forwarded-for")
        address = self._proxies.client_address(request.client, forwarded_for)
        path = _path(scope, request).removeprefix(ROOT)
        environ = asgi.environ_of(
            scope, self._root, path=path, address=address, scheme=self._scheme
        )
        asgi.give_body(environ, body)
        loop = asyncio.get_running_loop()
        environ[ENVIRON] = RequestApi(self.api, scope, loop)
        async with self._turns.turn(Stranger(*levels(address))):
            return await loop.run_in_executor(self._threads, self._write, environ)

    @staticmethod
    def _bytes_max(scope: Any, request: Request) -> int:
        is_response = request.method == "POST" and _ACS.fullmatch(_path(scope, request))
        return RESPONSE_BYTES_MAX if is_response else BODY_BYTES_MAX

    def _write(self, environ: dict[str, Any]) -> asgi.Written:
        return asgi.answer(self._app, environ)

    @cached_property
    def _app(self) -> Any:
        # When somebody opens a page: loading it takes 30 ms, and a start should not.
        from pages.account.app import make_app  # noqa: PLC0415

        return make_app(is_secure=self._is_secure)


def _path(scope: Any, request: Request) -> str:
    return request.path.removeprefix(scope.get("root_path", ""))


class RequestApi:
    """The API for one request of a browser (`pages.account.api.AccountApi`)."""

    def __init__(self, app: AsgiApp, scope: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._app, self._scope, self._loop = app, scope, loop
        # One id for what the page was asked and what it asks.
        self._request_id = str(structlog.contextvars.get_contextvars().get("request_id", ""))

    def call(
        self, method: str, path: str, *, token: str = "", body: Any = None, key: str = ""
    ) -> ApiAnswer:
        """On a thread of the pages, which waits."""
        headers = [pair for pair in self._scope["headers"] if pair[0] in _PASSED_ON]
        sent = b"" if body is None else orjson.dumps(body)
        for name, value in (
            ("x-request-id", self._request_id),
            ("authorization", f"Bearer {token}" if token else ""),
            ("idempotency-key", key),
            ("content-type", "application/json" if body is not None else ""),
            ("content-length", str(len(sent)) if body is not None else ""),
        ):
            if value:
                headers.append((name.encode(), value.encode("latin-1")))
        asked = _ask(self._app, self._inner_scope(method, path, headers), sent)
        answering = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return answering.result(_API_ANSWERS_WITHIN_S)
        except TimeoutError:
            answering.cancel()
            raise

    def _inner_scope(self, method: str, path: str, headers: list[Any]) -> dict[str, Any]:
        plain, _, query = path.partition("?")
        outer = self._scope
        return {
            **{name: outer[name] for name in ("type", "asgi", "http_version", "scheme", "server")},
            "client": outer.get("client"),
            "method": method,
            "path": plain,
            "raw_path": plain.encode("ascii"),
            "query_string": query.encode("ascii"),
            "root_path": "",
            "headers": headers,
        }


async def _ask(app: AsgiApp, scope: dict[str, Any], body: bytes) -> ApiAnswer:
    messages: list[dict[str, Any]] = []
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if unread:
            return unread.pop()
        # The page waits for the answer, whether or not the browser does.
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await app(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in messages[1:])
    headers = {name.lower(): value for name, value in messages[0]["headers"]}
    found = orjson.loads(content) if content else {}
    return ApiAnswer(
        messages[0]["status"], found, headers.get(b"retry-after", b"").decode("latin-1")
    )


def _notice(problem: Problem) -> asgi.Written:
    """For whoever is refused before any page is asked."""
    text = f"{problem.detail[:1].upper()}{problem.detail[1:]}."
    content, headers = alone.notice(problem.title, text)
    said = {"Content-Type": alone.HTML, **headers, **problem.headers, "Cache-Control": "no-store"}
    return problem.status, asgi.encoded(said.items()), content
