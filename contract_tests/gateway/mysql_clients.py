"""MySQL's clients, as people use them: PyMySQL and the `mariadb` command line."""

import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pymysql
import pytest

from contract_tests.gateway.rig import WAIT_S, GatewayRig
from contract_tests.gateway.servers import MariaDb
from gateway.protocols import mysql_wire as wire

PASSWORD = "the password of app"


def mysql_instance(gateway: GatewayRig, server: MariaDb, name: str, **members: Any) -> str:
    """A host that leads to the real server; its route may say otherwise."""
    members = {"socket": str(server.socket), "protocol": "mysql", **members}
    return gateway.add_instance(name, backend=False, **members)


def connect(
    gateway: GatewayRig,
    host: str,
    user: str = "app",
    password: str = PASSWORD,
    preface: bytes = b"",
    **options: Any,
) -> Any:
    """Verified by the host's own name, which TLS is told; `preface` is a balancer's."""
    plain = socket.create_connection(("127.0.0.1", gateway.ports["mysql"]), WAIT_S)
    plain.sendall(preface)
    connection = pymysql.connect(
        **{"host": host, "user": user, "password": password, "ssl": gateway.context(), **options},
        defer_connect=True,
        read_timeout=60,
    )
    try:
        connection.connect(plain)
    except BaseException:
        plain.close()
        raise
    return connection


def connect_unnamed(gateway: GatewayRig, user: str, **options: Any) -> Any:
    """As clients do that tell TLS no name: no name is sent for an address."""
    context = gateway.context()
    context.check_hostname = False
    return connect(gateway, "127.0.0.1", user, ssl=context, **options)


def receive_packet(connection: socket.socket, received: bytearray) -> wire.Packet | None:
    """None at the end of the connection; a reset, by what was still unread, is an end too."""
    while (packet := wire.take_packet(received)) is None:
        try:
            data = connection.recv(65_536)
        except ConnectionError:
            return None
        if not data:
            return None
        received += data
    return packet


def rows(connection: Any, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


def command_line(
    gateway: GatewayRig, host: str, *arguments: str, user: str = "app", tls: bool = True
) -> "subprocess.CompletedProcess[str]":
    """The `mariadb` client, verifying; the host is made known to it alone by a hosts file."""
    client, sandbox = shutil.which("mariadb"), shutil.which("bwrap")
    if client is None or sandbox is None:
        pytest.skip("mariadb-client or bubblewrap is not installed")
    hosts: Path = gateway.home / "hosts"
    hosts.write_text(f"127.0.0.1 {host}\n")
    verified = [f"--ssl-ca={gateway.home / 'pki' / 'root.pem'}", "--ssl-verify-server-cert"]
    return subprocess.run(
        [
            *(sandbox, "--dev-bind", "/", "/", "--ro-bind", str(hosts), "/etc/hosts"),
            *(client, "--no-defaults", f"--host={host}", f"--port={gateway.ports['mysql']}"),
            *(f"--user={user}", f"--password={PASSWORD}", "--batch", "--skip-column-names"),
            *(verified if tls else ["--skip-ssl"]),
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
