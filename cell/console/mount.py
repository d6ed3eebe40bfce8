"""The pages of the console within the cell's own server: WSGI, answered by threads, as ASGI."""

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from werkzeug.test import run_wsgi_app

from pages.console import STATEMENT_BYTES_MAX, Desk, make_app

ROOT = "/console"
# A statement in JSON, where each of its bytes may take six, as in \u0000.
BODY_BYTES_MAX = 6 * STATEMENT_BYTES_MAX + 1_000
THREADS = 32

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


class Pages:
    """Bodies are bounded both ways, so that each is read and written as a whole."""

    def __init__(self, desk: Desk) -> None:
        self._app = make_app(desk)
        self._threads = ThreadPoolExecutor(THREADS, "pages")

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        body = await _read(receive)
        if body is None:
            status, headers, content = 413, _TEXT, b"the request is too large\n"
        else:
            loop = asyncio.get_running_loop()
            answering = loop.run_in_executor(self._threads, self._answer, _environ(scope, body))
            status, headers, content = await answering
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _answer(self, environ: dict[str, Any]) -> Answer:
        chunks, status, headers = run_wsgi_app(self._app, environ, buffered=True)
        return int(status.split()[0]), _encoded(headers), b"".join(chunks)


_TEXT = [(b"content-type", b"text/plain"), (b"connection", b"close")]


def _encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]


async def _read(receive: Receive) -> bytes | None:
    """None where there is too much of it, or nobody there any more."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            return None
        if not message.get("more_body"):
            return bytes(body)


def _environ(scope: Any, body: bytes) -> dict[str, Any]:
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
        "wsgi.input": io.BytesIO(body),
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
    environ["CONTENT_LENGTH"] = str(len(body))
    return environ
