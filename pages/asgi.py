"""Pages are WSGI, and the servers they are part of are ASGI: a request of the one as the other's.

Bodies are bounded both ways, so that each is read and written as a whole.
"""

import io
import sys
from collections.abc import Iterable
from typing import Any

from werkzeug.test import run_wsgi_app

# Status, headers and body.
Written = tuple[int, list[tuple[bytes, bytes]], bytes]


def environ_of(scope: Any, root: str, *, path: str, address: str, scheme: str) -> dict[str, Any]:
    """PEP 3333: text of bytes as latin-1, and headers that came twice in one line.

    `root` is what links begin with, and `path` what is below it.
    """
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": root,
        "PATH_INFO": path.encode().decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "REMOTE_ADDR": address,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "443" if scheme == "https" else "80",
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scheme,
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


def give_body(environ: dict[str, Any], body: bytes | bytearray) -> None:
    environ["wsgi.input"] = io.BytesIO(body)
    environ["CONTENT_LENGTH"] = str(len(body))


def answer(app: Any, environ: dict[str, Any]) -> Written:
    """What the app says; to be called on a thread."""
    chunks, status, headers = run_wsgi_app(app, environ, buffered=True)
    return int(status.split()[0]), encoded(headers), b"".join(chunks)


def encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
