"""Receivers on loopback, over HTTP and TLS, that answer as tests tell them to."""

import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)


@dataclass
class Answering:
    """`hangs_s` before it answers; `drip_s` between the bytes of the body."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    hangs_s: float = 0.0
    drip_s: float = 0.0


class Receiver:
    """Keeps what it gets; `answer` says how to answer each. To be closed."""

    def __init__(
        self,
        answer: Callable[[Received], Answering] | None = None,
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.received: list[Received] = []
        self.connections = 0
        self.answer = answer or (lambda _received: Answering())
        self._ending = threading.Event()
        self._server = ThreadingHTTPServer((host, 0), self._handler())
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/hook"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                receiver.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                got = Received(self.path, headers, body)
                receiver.received.append(got)
                receiver._send(self, receiver.answer(got))

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def _send(self, to: BaseHTTPRequestHandler, answer: Answering) -> None:
        self._ending.wait(answer.hangs_s)
        try:
            to.send_response(answer.status)
            for name, value in answer.headers.items():
                to.send_header(name, value)
            to.send_header("Content-Length", str(len(answer.body)))
            to.end_headers()
            for byte in answer.body if answer.drip_s else ():
                to.wfile.write(bytes([byte]))
                if self._ending.wait(answer.drip_s):
                    return
            if not answer.drip_s:
                to.wfile.write(answer.body)
        except OSError:
            to.close_connection = True
