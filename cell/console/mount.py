"""The pages of the console within the cell's own server: WSGI, answered by threads, as ASGI."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from werkzeug.http import parse_cookie

from cell.console.answers import SMALL_BYTES, Answers
from cell.console.bodies import Bodies, RefusedBody
from cell.console.service import ConsoleService
from pages import asgi
from pages.console import COOKIE, ConsoleCaller, Refused, make_app

ROOT = "/console"
THREADS = 32

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]


class Pages:
    """Bodies are bounded both ways, so that each is read and written as a whole."""

    def __init__(self, console: ConsoleService) -> None:
        self._app = make_app(console)
        self._console = console
        self._bodies = Bodies()
        self._answers = Answers()
        self._threads = ThreadPoolExecutor(THREADS, "pages")

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        environ, loop = _environ(scope), asyncio.get_running_loop()

        async def has_session() -> bool:
            return await loop.run_in_executor(self._threads, self._has_session, environ)

        try:
            body = await self._bodies.read(receive, environ["REMOTE_ADDR"], has_session)
        except RefusedBody as refused:
            status, headers, content = refused.status, _TEXT, f"{refused}\n".encode()
        else:
            try:
                asgi.give_body(environ, body.content)
                answering = loop.run_in_executor(self._threads, asgi.answer, self._app, environ)
                status, headers, content = await answering
            finally:
                body.release()
        whose = self._console.whose(_caller(environ)) if len(content) > SMALL_BYTES else None
        if whose and not self._answers.reserve(whose):
            whose, status, headers, content = None, 503, _JSON, _TOO_MANY
        try:
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await self._answers.send(send, content)
        finally:
            if whose:
                self._answers.release(whose)

    def _has_session(self, environ: dict[str, Any]) -> bool:
        try:
            return self._console.about(_caller(environ)) is not None
        except Refused:
            return False


def _caller(environ: dict[str, Any]) -> ConsoleCaller:
    instance_id = environ["PATH_INFO"].split("/")[1:2]
    secret = parse_cookie(environ.get("HTTP_COOKIE", "")).get(COOKIE, "")
    return ConsoleCaller("".join(instance_id), secret, environ["REMOTE_ADDR"])


_JSON = [(b"content-type", b"application/json")]
_TOO_MANY = (
    b'{"error": "The statement was run, but too many large results of your or your organization\'s'
    b' consoles are still being read; try again in a moment."}'
)
_TEXT = [(b"content-type", b"text/plain"), (b"connection", b"close")]


def _environ(scope: Any) -> dict[str, Any]:
    # Of whom the gateway announced; nobody else has an address. Whatever reaches the cell by its
    # gateway came by TLS.
    address = scope["client"][0] if scope["client"] else ""
    path = scope["path"].removeprefix(ROOT)
    return asgi.environ_of(scope, ROOT, path=path, address=address, scheme="https")
