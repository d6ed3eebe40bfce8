"""Whoever stands between a cell and its ACME server: counts what is asked, and spoils answers."""

import json
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from contract_tests.gateway.authorities import Pair

PASSED_ON = {"content-type", "accept", "user-agent"}
LEFT_OUT = {"content-length", "transfer-encoding", "connection", "date"}
PROBLEM = "urn:ietf:params:acme:error:"


@dataclass
class Fault:
    """What befalls the next `times` requests whose path begins with `path`.

    With `status` the server never hears of the request; else `changes` go into its answer, or
    `body` takes the place of it.
    """

    path: str
    times: int = 1
    status: int | None = None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)


def problem(path: str, kind: str, status: int = 400, times: int = 1, **headers: str) -> Fault:
    body = {"type": f"{PROBLEM}{kind}", "detail": f"{kind} for the test", "status": status}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    said = {"content-type": "application/problem+json", **named}
    return Fault(path, times, status, body, said)


class Between:
    """Pebble makes its URLs of the host it is asked by, so all of them lead through here."""

    def __init__(self, pair: Pair, ca_file: Path, upstream: int) -> None:
        self._pair = pair
        self._upstream = upstream
        self._verify = ssl.create_default_context(cafile=str(ca_file))
        self.faults: list[Fault] = []
        self.asked: list[str] = []
        self._server = self._listen(0)
        self.port = int(self._server.server_address[1])
        self._server.server_close()
        self.runs = False

    def start(self) -> None:
        if not self.runs:
            self._server = self._listen(self.port)
            threading.Thread(target=self._server.serve_forever, daemon=True).start()
            self.runs = True

    def stop(self) -> None:
        """Nobody answers at its port any more."""
        if self.runs:
            self._server.shutdown()
            self._server.server_close()
            self.runs = False

    def count(self, path: str) -> int:
        return sum(each.startswith(path) for each in self.asked)

    def _listen(self, port: int) -> ThreadingHTTPServer:
        handler = type("Handler", (_Handler,), {"between": self})
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._pair.certificate, self._pair.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        return server

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        self.asked.append(path)
        fault = next((one for one in self.faults if path.startswith(one.path) and one.times), None)
        if fault is not None:
            fault.times -= 1
            if fault.status is not None:
                content = json.dumps(fault.body).encode() if fault.body is not None else b""
                return fault.status, dict(fault.headers), content
        host = f"localhost:{self.port}"
        kept = {name: value for name, value in headers.items() if name.lower() in PASSED_ON}
        with httpx.Client(verify=self._verify, timeout=30) as http:
            url = f"https://localhost:{self._upstream}{path}"
            told = http.request(method, url, headers={**kept, "host": host}, content=body)
        said = {name: value for name, value in told.headers.items() if name not in LEFT_OUT}
        content = told.content
        if fault is not None and not told.is_success:
            fault.times += 1  # a nonce that was refused: the request comes again
        elif fault is not None:
            said |= fault.headers
            changed = fault.body or json.dumps(told.json() | dict(fault.changes))
            content = str(changed).encode()
        return told.status_code, said, content


class _Handler(BaseHTTPRequestHandler):
    between: Between
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_POST = do_GET  # noqa: N815 - as above

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if not self.between.runs:  # a connection that was there before it stopped
            self.close_connection = True
            return
        status, headers, content = self.between.answer(
            self.command, self.path, dict(self.headers), body
        )
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
