"""Whoever stands between a cell and its ACME server: counts what is asked, and spoils answers."""

import json
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from contract_tests.gateway.authorities import Pair
from contract_tests.kept_port import KeptPort

PASSED_ON = {"content-type", "accept", "user-agent"}
LEFT_OUT = {"content-length", "transfer-encoding", "connection", "date"}
SHUTDOWN_POLL_S = 0.05
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


class Answered(NamedTuple):
    """What was asked, when, and what it was answered with."""

    path: str
    at: float
    status: int


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
        self.answered: list[Answered] = []
        self._kept = KeptPort()
        self.port = self._kept.number
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        if self._server is None:
            self._server = self._listen()
            threading.Thread(
                target=self._server.serve_forever, args=(SHUTDOWN_POLL_S,), daemon=True
            ).start()

    def stop(self) -> None:
        """Nobody answers at its port any more."""
        if self._server is not None:
            server, self._server = self._server, None
            server.shutdown()
            server.server_close()

    def close(self) -> None:
        self.stop()
        self._kept.close()

    @property
    def runs(self) -> bool:
        return self._server is not None

    def count(self, path: str) -> int:
        return sum(each.path.startswith(path) for each in self.answered)

    def times(self, path: str, status: int) -> list[float]:
        """When what was answered so was asked for: a stall of the test changes nothing of it."""
        return [
            each.at
            for each in self.answered
            if each.path.startswith(path) and each.status == status
        ]

    def _listen(self) -> ThreadingHTTPServer:
        handler = type("Handler", (_Handler,), {"between": self})
        server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._pair.certificate, self._pair.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        return server

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        asked_at = time.time()
        status, said, content = self._answer(method, path, headers, body)
        self.answered.append(Answered(path, asked_at, status))
        return status, said, content

    def _answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        fault = next((one for one in self.faults if path.startswith(one.path) and one.times), None)
        if fault is not None:
            fault.times -= 1
            if fault.status is not None:
                content = json.dumps(fault.body).encode() if fault.body is not None else b""
                return fault.status, dict(fault.headers), content
        host = f"localhost:{self.port}"
        kept = {name: value for name, value in headers.items() if name.lower() in PASSED_ON}
        with httpx.Client(verify=self._verify, timeout=60) as http:
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
