"""A real PostgreSQL behind a gateway, and ways to connect by it."""

import os
import shutil
import signal
import socket
import ssl
import struct
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from contract_tests.databases import Cluster
from contract_tests.gateway.rig import WAIT_S, ZONE, GatewayRig

PASSWORD = "a password of the test"
HBA = "local all menagerie,open trust\nlocal all all scram-sha-256\n"
SSL_REQUEST = struct.pack("!II", 8, 80877103)
GSSENC_REQUEST = struct.pack("!II", 8, 80877104)
ALPN = "postgresql"


class Postgres:
    """A server on a unix socket, where `app` needs a password and `open` does not."""

    def __init__(self) -> None:
        # A folder that is not root's alone: the server runs as somebody else.
        self._home = Path(tempfile.mkdtemp(prefix="pg"))
        self._home.chmod(0o755)
        self.cluster = Cluster(self._home / "pg")
        (self.cluster.data / "pg_hba.conf").write_text(HBA)
        self.cluster.start()
        self.socket = self._home / "pg" / ".s.PGSQL.5432"
        with self.administrator() as connection:
            connection.execute(f"CREATE ROLE app LOGIN PASSWORD '{PASSWORD}'".encode())
            connection.execute("CREATE ROLE open LOGIN")

    def administrator(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(
            host=str(self._home / "pg"), user="menagerie", dbname="postgres", autocommit=True
        )

    def close(self) -> None:
        self.cluster.stop(signal.SIGQUIT)  # nobody will read what a checkpoint would keep
        shutil.rmtree(self._home)


def add_postgres(gateway: GatewayRig, name: str, postgres: Postgres, **members: Any) -> str:
    """The host of a new instance that this server stands behind."""
    given = {"protocol": "postgres", "socket": str(postgres.socket), **members}
    return gateway.add_instance(name, backend=False, **given)


def options(gateway: GatewayRig, host: str, **further: Any) -> dict[str, Any]:
    """What libpq needs to connect with everything verified."""
    return {
        "host": host,
        "hostaddr": "127.0.0.1",
        "port": gateway.ports["postgres"],
        "dbname": "postgres",
        "user": "app",
        "password": PASSWORD,
        "sslmode": "verify-full",
        "sslrootcert": str(gateway.home / "pki" / "root.pem"),
        "connect_timeout": int(WAIT_S),
        **further,
    }


def connect(gateway: GatewayRig, host: str, **further: Any) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(**options(gateway, host, **further), autocommit=True)


def libpq_environment(gateway: GatewayRig, host: str, **further: str) -> dict[str, str]:
    given = options(gateway, host)
    names = {"dbname": "PGDATABASE", "connect_timeout": "PGCONNECT_TIMEOUT"}
    found = {names.get(key, f"PG{key.upper()}"): str(value) for key, value in given.items()}
    return {**os.environ, **found, **further}


def dial(gateway: GatewayRig, source: str | None = None) -> socket.socket:
    bound = (source, 0) if source else None
    return socket.create_connection(("127.0.0.1", gateway.ports["postgres"]), WAIT_S, bound)


def asked_for_tls(gateway: GatewayRig, host: str | None) -> ssl.SSLSocket:
    """A connection after SSLRequest and handshake."""
    plain = dial(gateway)
    plain.sendall(SSL_REQUEST)
    assert plain.recv(1) == b"S"
    context = gateway.context()
    context.check_hostname = host is not None
    return context.wrap_socket(plain, server_hostname=host)


def startup(**parameters: str) -> bytes:
    body = b"".join(f"{key}\0{value}\0".encode() for key, value in parameters.items()) + b"\0"
    return struct.pack("!II", 8 + len(body), 3 << 16) + body


def read_error(connection: socket.socket) -> dict[str, str]:
    """The fields of an ErrorResponse, after which nothing more may come."""
    said = b""
    while chunk := connection.recv(10_000):
        said += chunk
    kind, size = struct.unpack_from("!cI", said)
    assert (kind, size) == (b"E", len(said) - 1)
    fields = said[5:].split(b"\0")
    assert fields[-2:] == [b"", b""]
    return {field[:1].decode(): field[1:].decode() for field in fields[:-2]}


def label(host: str) -> str:
    return host.removesuffix(f".{ZONE}")
