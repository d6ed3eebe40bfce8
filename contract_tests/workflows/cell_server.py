"""What answers in the place of a cell, on a unix socket: whatever a test wants it to say."""

import contextlib
import http.server
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from contract_tests.gateway.authorities import Authority
from specserver import Document

_DOCUMENT: Final = Path(__file__).resolve().parents[2] / "cell" / "openapi.yaml"


class Server(socketserver.ThreadingUnixStreamServer):
    """Answers what `answer` holds, and keeps what was asked."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.answer: tuple[int, Any] = (200, {})
        self.headers: dict[str, str] = {}
        self.part_bytes, self.pause_s = 1 << 20, 0.0
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        super().__init__(str(path), _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, self.path, headers, body))
        status, content = self.server.answer
        written = content if isinstance(content, bytes) else orjson.dumps(content)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(written)), **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # refused before its end
            for at in range(0, len(written), self.server.part_bytes):
                self.wfile.write(written[at : at + self.server.part_bytes])
                time.sleep(self.server.pause_s)

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the names http.server looks for

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_of: Any) -> None:
        """Tests ask `asked`."""


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="cell") as directory:
        made = Server(Path(directory) / "s")
        # It looks so often whether it is to end, which every test waits for.
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()
        made.server_close()


@cache
def said(operation: str) -> dict[str, Any]:
    """What a cell says where it succeeds: the example of its document. Not to be changed."""
    document = Document.load(_DOCUMENT, checked=True)
    responses = next(
        each["responses"]
        for _, _, each in document.operations()
        if each["operationId"] == operation
    )
    examples = responses["200"]["content"]["application/json"]["examples"]
    example: dict[str, Any] = next(iter(examples.values()))["value"]
    if operation == "cells.get":
        pem = Authority("cell", Path()).pem
        return {**example, "ca": {"root_pem": pem, "chain_pem": pem}}
    return example
