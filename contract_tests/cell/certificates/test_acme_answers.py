"""What an ACME server answers is bounded, and is not unpacked."""

import contextlib
import gzip
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from cell.certificates.acme import answers
from cell.certificates.acme.problems import AcmeError
from cell.certificates.acme.server import AcmeServer
from cell.settings import CellSettings
from gateway.bounded_answers import BYTES_MAX

NAMES = ("newNonce", "newAccount", "newOrder")


class Directory(http.server.ThreadingHTTPServer):
    """Answers its directory with what is in hand."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/directory"
        self.content = json.dumps({name: f"{self.url}/{name}" for name in NAMES}).encode()
        self.headers: dict[str, str] = {}
        self.accepted: list[str | None] = []


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Directory

    def do_GET(self) -> None:
        self.server.accepted.append(self.headers["Accept-Encoding"])
        self.send_response(200)
        for name, value in {"Content-Type": "application/json", **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # refused before its end
            self.wfile.write(self.server.content)

    def log_message(self, *_of: Any) -> None:
        """Tests ask `accepted`."""


@pytest.fixture
def directory() -> Iterator[Directory]:
    with Directory() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def connect(directory: Directory) -> AcmeServer:
    settings = CellSettings(Path("/nowhere"), "cell_1", b"k" * 32, acme_directory=directory.url)
    return AcmeServer(settings, ec.generate_private_key(ec.SECP256R1()), None)


def test_a_directory_is_read(directory: Directory) -> None:
    connect(directory)
    assert directory.accepted == ["identity"]


def test_a_compressed_answer_is_refused(directory: Directory) -> None:
    directory.content = gzip.compress(directory.content)
    directory.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(AcmeError, match="cannot be reached") as refused:
        connect(directory)
    assert "which was not asked for" in str(refused.value.__cause__)


def test_an_answer_beyond_the_bound_is_refused(directory: Directory) -> None:
    directory.content = directory.content.ljust(BYTES_MAX)
    connect(directory)
    directory.content += b" "
    with pytest.raises(AcmeError, match="cannot be reached") as refused:
        connect(directory)
    assert "larger than 16 MiB" in str(refused.value.__cause__)


def test_an_answer_that_takes_too_long_is_refused(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "WITHIN_S", -1.0)
    with pytest.raises(AcmeError, match="cannot be reached") as refused:
        connect(directory)
    assert "did not end in time" in str(refused.value.__cause__)
