"""The pages of the console within the cell's own server: WSGI, answered by threads, as ASGI."""

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from werkzeug.http import parse_cookie
from werkzeug.test import run_wsgi_app

from cell.console.answers import SMALL_BYTES, Answers
from cell.console.bodies import Bodies, RefusedBody
from cell.console.service import ConsoleService
from pages.console import COOKIE, ConsoleCaller, Refused, make_app

ROOT = "/console"
THREADS = 32

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


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
                environ["wsgi.input"] = io.BytesIO(body.content)
                environ["CONTENT_LENGTH"] = str(len(body.content))
                answering = loop.run_in_executor(self._threads, self._answer, environ)
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

    def _answer(self, environ: dict[str, Any]) -> Answer:
        chunks, status, headers = run_wsgi_app(self._app, environ, buffered=True)
        return int(status.split()[0]), _encoded(headers), b"".join(chunks)


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


def _encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]


def _environ(scope: Any) -> dict[str, Any]:
    """PEP 3333: text of bytes as latin-1, and headers that came twice in one line."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": ROOT,
        "PATH_INFO": scope["path"].removeprefix(ROOT).encode().decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        # Of whom the gateway announced; nobody else has an address.
        "REMOTE_ADDR": scope["client"][0] if scope["client"] else "",
        "SERVER_NAME": "cell",
        "SERVER_PORT": "443",
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "wsgi.version": (1, 0),
        # Whatever reaches the cell by its gateway came by TLS.
        "wsgi.url_scheme": "https",
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").upper(), raw_value.decode("latin-1")
        if "_" in name or name in {"CONTENT-LENGTH", "TRANSFER-ENCODING"}:
            continue
        if name != "CONTENT-TYPE":
            name = f"HTTP_{name}"
        name = name.replace("-", "_")
        joint = "; " if name == "HTTP_COOKIE" else ","
        environ[name] = f"{environ[name]}{joint}{value}" if name in environ else value
    return environ
