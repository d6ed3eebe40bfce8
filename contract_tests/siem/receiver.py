"""A target on loopback: an HTTP server that keeps what it accepts, and answers as it is told."""

import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson


@dataclass(frozen=True)
class Posted:
    """What was accepted."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [orjson.loads(each) for each in self.body.splitlines()]


@dataclass
class Receiver:
    """`answers` are the next statuses, 200 once there are none; `always` is one for all."""

    always: int | None = None
    answers: deque[int] = field(default_factory=deque)
    accepted: list[Posted] = field(default_factory=list)
    refused: list[Posted] = field(default_factory=list)

    def __post_init__(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = receiver.take(Posted(self.path, headers, body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                if 300 <= status < 400:
                    self.send_header("Location", "http://127.0.0.1:1/")
                self.end_headers()

            def log_message(self, *_given: Any) -> None:
                """The test says what matters."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/in"

    def take(self, posted: Posted) -> int:
        status = self.always or (self.answers.popleft() if self.answers else 200)
        (self.accepted if status < 300 else self.refused).append(posted)
        return status

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [line for each in list(self.accepted) for line in each.lines]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
