"""Promise 47 on every port: TLS 1.2 and 1.3 only, behind whatever a protocol says before TLS."""

import socket
import ssl

import pytest

from cell import ports
from cell.gateway.protocols import mysql_wire as wire
from contract_tests.gateway.door import Door
from contract_tests.gateway.test_tls_policy import NEW, OLD, lenient, only

POSTGRES_SSL_REQUEST = b"\0\0\0\x08\x04\xd2\x16\x2f"
MYSQL_SSL_REQUEST = wire.frame(
    wire.build_ssl_request(wire.SslRequest(wire.PROTOCOL_41 | wire.SSL, 0, 45)), 1
)
PROTOCOLS = list(ports.DEFAULT)
WEAK = "ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES256-SHA384:AES128-SHA:AES256-GCM-SHA384"


def accepts(door: Door, protocol: str, host: str, context: ssl.SSLContext) -> bool:
    address = ("127.0.0.1", door.ports[protocol])
    with socket.create_connection(address, 20) as plain:
        if protocol == "mysql":
            assert plain.recv(1_000)
            plain.sendall(MYSQL_SSL_REQUEST)
        if protocol == "postgres":
            plain.sendall(POSTGRES_SSL_REQUEST)
            assert plain.recv(1) == b"S"
        try:
            context.wrap_socket(plain, server_hostname=host).close()
        except (ssl.SSLError, ConnectionError):
            return False
    return True


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_only_new_versions_and_strong_suites_are_spoken(fronts_door: Door, protocol: str) -> None:
    routed = "clickhouse" if protocol == "clickhouse_https" else protocol
    host = fronts_door.add_instance(
        f"tls-{protocol.replace('_', '-')}",
        backend=False,
        protocol=routed,
        https_socket=str(fronts_door.home / "run" / "none.sock"),
    )
    for version in NEW:
        assert accepts(fronts_door, protocol, host, only(version))
    for version in OLD:
        assert not accepts(fronts_door, protocol, host, only(version))
    weak = lenient()
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers(f"{WEAK}:@SECLEVEL=0")
    assert not accepts(fronts_door, protocol, host, weak)


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
def test_nothing_is_served_in_plaintext(fronts_door: Door, protocol: str, sent: bytes) -> None:
    """Whatever is said, the connection ends, and no answer is longer than a refusal."""
    received = b""
    with socket.create_connection(("127.0.0.1", fronts_door.ports[protocol]), 20) as plain:
        plain.sendall(sent)
        plain.shutdown(socket.SHUT_WR)
        try:
            while data := plain.recv(65_536):
                received += data
        except ConnectionResetError:
            pass
    assert len(received) < 500
