"""The lines of `menagerie credentials` verify the name, also where they give an address beside it.

The server here has a certificate of the right authority for another name, and notes what it is
told once TLS stands: nobody may tell it a password.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.cli.lines import CLIENTS, Place
from clients.credentials import Credential
from contract_tests.clients.pasting import pasted
from contract_tests.clients.servers import Authority

# These verify the authority, and cannot be told to verify a name beside an address.
AUTHORITY_ONLY = {"redis-cli", "valkey-cli", "mariadb", "mysql"}
CASES = [
    (engine, client)
    for engine in ("postgres", "mariadb", "redis", "duckdb", "meilisearch")
    for client in CLIENTS[engine]
    if client not in AUTHORITY_ONLY
]
# Protocol 10, version, thread, salt, capabilities (TLS among them), and the way of logging in.
GREETING = (
    b"\x0a8.0.40\x00" + bytes(4) + b"saltsalt\x00\x0f\xaa\x2d\x02\x00\x08\x00"
    b"\x15" + bytes(10) + b"saltsaltsalt\x00mysql_native_password\x00"
)


class Impostor:
    """Speaks as much of each protocol as comes before TLS."""

    def __init__(self, engine: str, context: ssl.SSLContext) -> None:
        self.engine = engine
        self.context = context
        self.handshakes = 0
        self.told = b""
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(20)
                self._before_tls(connection)
                self.handshakes += 1
                with self.context.wrap_socket(connection, server_side=True) as secured:
                    self.told += secured.recv(1000)

    def _before_tls(self, connection: socket.socket) -> None:
        if self.engine == "postgres":
            connection.recv(8)
            connection.sendall(b"S")
        elif self.engine == "mariadb":
            connection.sendall(len(GREETING).to_bytes(3, "little") + b"\x00" + GREETING)
            connection.recv(36)


@pytest.fixture
def impostor(engine: str, tmp_path: Path) -> Iterator[Impostor]:
    server = Impostor(engine, Authority(tmp_path, "another.local.localhost").context)
    yield server
    server.socket.shutdown(socket.SHUT_RDWR)
    server.socket.close()
    server.thread.join(20)


@pytest.mark.nightly
@pytest.mark.parametrize(("engine", "client"), CASES)
def test_another_name_of_the_same_authority_is_told_nothing(
    engine: str, client: str, impostor: Impostor, tmp_path: Path
) -> None:
    host = f"{engine}-1.local.localhost"
    uri = f"{engine}://{host}/{'0' if engine == 'redis' else 'app'}"
    credential = Credential("app", "s3cret", host, impostor.port, uri)
    done = pasted(Place(engine, credential, str(tmp_path / "ca.pem")), client, tmp_path)
    seen = done.stdout + done.stderr
    assert impostor.handshakes, seen
    assert impostor.told == b""
    assert any(word in seen for word in ("match", "altnames", "no alternative")), seen
