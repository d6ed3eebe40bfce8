"""An ACME server that answers whatever a test has in hand, and keeps what it was asked."""

import contextlib
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec

from cell.certificates.acme.server import AcmeServer
from cell.settings import CellSettings
from contract_tests.gateway.authorities import SERVER, Authority

NAMES = ("newNonce", "newAccount", "newOrder")


class Answer(NamedTuple):
    status: int
    content: bytes = b""
    headers: dict[str, str] = {}  # noqa: RUF012 - nobody writes to it


def problem(detail: bytes) -> Answer:
    """Written by hand: what a test is about may be no UTF-8."""
    kind = b"urn:ietf:params:acme:error:unauthorized"
    return Answer(403, b'{"type":"%s","detail":"%s"}' % (kind, detail))


class Directory(http.server.ThreadingHTTPServer):
    """`answers` are by path; any other path is answered with an empty object."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        authority = Authority("acme", folder)
        self.ca_file = folder / "acme-tls.pem"
        self.ca_file.write_text(authority.pem)
        pair = authority.issue("localhost", SERVER)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.origin = f"https://localhost:{self.server_port}"
        self.urls = {name: f"{self.origin}/{name}" for name in NAMES}
        self.content: bytes | None = None
        self.headers: dict[str, str] = {}
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, str]] = []
        self.accepted: list[str | None] = []

    @property
    def whole(self) -> bytes:
        """What the directory itself is answered with."""
        return json.dumps(self.urls).encode() if self.content is None else self.content

    def connect(self, url: str | None = None) -> AcmeServer:
        settings = CellSettings(
            Path("/nowhere"),
            "cell_1",
            b"k" * 32,
            acme_directory=url or f"{self.origin}/directory",
            acme_ca_file=str(self.ca_file),
        )
        return AcmeServer(settings, ec.generate_private_key(ec.SECP256R1()), None)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Directory

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path))
        self.server.accepted.append(self.headers["Accept-Encoding"])
        if self.path == "/directory" and self.path not in self.server.answers:
            answer = Answer(200, self.server.whole, self.server.headers)
        else:
            answer = self.server.answers.get(self.path, Answer(200, b"{}"))
        self.send_response(answer.status)
        named = {"Content-Type": "application/json", "Replay-Nonce": "bm9uY2U", **answer.headers}
        for name, value in named.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # refused before its end
            self.wfile.write(b"" if self.command == "HEAD" else answer.content)

    do_HEAD = do_POST = do_GET  # noqa: N815 - the names http.server looks for

    def log_message(self, *_of: Any) -> None:
        """Tests ask `asked`."""


@contextmanager
def running(folder: Path) -> Iterator[Directory]:
    with Directory(folder) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()
