"""Promise 47 on every port: TLS 1.2 and 1.3 only, behind whatever a protocol says before TLS."""

import asyncio
import contextlib
import json
import socket
import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract_tests.by_day import one_in
from contract_tests.gateway.mysql_packets import ssl_request
from contract_tests.gateway.rig import WAIT_S, ZONE, GatewayRig, until
from contract_tests.gateway.test_tls_policy import NEW, OLD, lenient, only
from gateway import ports
from gateway.protocols import mysql_wire as wire

POSTGRES_SSL_REQUEST = b"\0\0\0\x08\x04\xd2\x16\x2f"
MYSQL_SSL_REQUEST = wire.frame(ssl_request(), 1)
PROTOCOLS = list(ports.DEFAULT)
WEAK = "ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES256-SHA384:AES128-SHA:AES256-GCM-SHA384"


def started(gateway: GatewayRig, protocol: str) -> socket.socket:
    """Where TLS is next."""
    plain = socket.create_connection(("127.0.0.1", gateway.ports[protocol]), WAIT_S)
    if protocol == "mysql":
        assert plain.recv(1_000)
        plain.sendall(MYSQL_SSL_REQUEST)
    if protocol == "postgres":
        plain.sendall(POSTGRES_SSL_REQUEST)
        assert plain.recv(1) == b"S"
    return plain


def hosted(gateway: GatewayRig, name: str, protocol: str) -> str:
    """A host of that protocol, made once."""
    name = name.replace("_", "-")
    host = f"duckdb-{name}.{ZONE}"
    if host in gateway.routes:
        return host
    routed = "clickhouse" if protocol == "clickhouse_https" else protocol
    path = str(gateway.home / "run" / f"{name}.sock")
    return gateway.add_instance(name, _hang_up, protocol=routed, https_socket=path)


def accepts(gateway: GatewayRig, protocol: str, host: str, context: ssl.SSLContext) -> bool:
    with started(gateway, protocol) as plain:
        try:
            context.wrap_socket(plain, server_hostname=host).close()
        except (ssl.SSLError, ConnectionError):
            return False
    return True


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_only_new_versions_and_strong_suites_are_spoken(
    protocols_gateway: GatewayRig, protocol: str
) -> None:
    host = hosted(protocols_gateway, f"tls-{protocol}", protocol)
    for version in NEW:
        assert accepts(protocols_gateway, protocol, host, only(version))
    for version in OLD:
        assert not accepts(protocols_gateway, protocol, host, only(version))
    weak = lenient()
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers(f"{WEAK}:@SECLEVEL=0")
    assert not accepts(protocols_gateway, protocol, host, weak)


@settings(max_examples=25, deadline=None)
@given(plain=st.binary(max_size=80), secret=st.binary(min_size=1, max_size=80))
@pytest.mark.parametrize("protocol", one_in(3, PROTOCOLS))
def test_random_bytes_end_no_worker_and_keep_no_place(
    protocols_gateway: GatewayRig, protocol: str, plain: bytes, secret: bytes
) -> None:
    """Before TLS and in it; behind the gateway is a server that hangs up on the first byte."""
    workers = protocols_gateway.workers()
    host = hosted(protocols_gateway, f"random-{protocol}", protocol)
    with (
        socket.create_connection(
            ("127.0.0.1", protocols_gateway.ports[protocol]), WAIT_S
        ) as connection,
        contextlib.suppress(OSError),
    ):
        connection.sendall(plain)
    with contextlib.suppress(OSError), started(protocols_gateway, protocol) as connection:
        context = protocols_gateway.context()
        if protocol == "postgres":
            context.set_alpn_protocols(["postgresql"])
        with context.wrap_socket(connection, server_hostname=host) as client:
            client.sendall(secret)
            client.settimeout(0.02)
            client.recv(1_000)
    assert protocols_gateway.workers() == workers
    until(lambda: connections(protocols_gateway, host) == 0, "no place is kept")


def connections(gateway: GatewayRig, host: str) -> int:
    instance_id = gateway.routes[host]["instance_id"]
    found = 0
    for path in (gateway.home / "activity").glob("*.json"):
        found += json.loads(path.read_bytes()).get(instance_id, {}).get("connections", 0)
    return found


async def _hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read(1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\0\0\0\x08\0\x03\0\0",
        b"\x16\x03\x01\0\x05hello",
        bytes(100),
    ],
)
def test_nothing_is_served_in_plaintext(
    protocols_gateway: GatewayRig, protocol: str, sent: bytes
) -> None:
    """Whatever is said, the connection ends, and no answer is longer than a refusal."""
    received = b""
    with socket.create_connection(
        ("127.0.0.1", protocols_gateway.ports[protocol]), WAIT_S
    ) as plain:
        plain.sendall(sent)
        plain.shutdown(socket.SHUT_WR)
        try:
            while data := plain.recv(65_536):
                received += data
        except ConnectionResetError:
            pass
    assert len(received) < 500
