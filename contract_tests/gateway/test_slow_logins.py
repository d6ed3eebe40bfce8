"""Logins of MySQL's and Redis' clients that do not end, or announce more than any login has."""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from contract_tests.by_day import one_in
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.mysql_clients import connect, mysql_instance, rows
from contract_tests.gateway.mysql_packets import ssl_request
from contract_tests.gateway.rig import WAIT_S, GatewayRig
from contract_tests.gateway.servers import MariaDb, Resp
from contract_tests.gateway.test_mysql_dialogue import CLIENT, login
from contract_tests.gateway.test_patience import ends
from contract_tests.gateway.test_resp import connect as connect_resp
from contract_tests.gateway.test_resp import resp_instance
from gateway.protocols import mysql_wire as wire

CROWD = "127.0.0.2"
PATIENCE_S = 1.0
HALF_LOGINS = 1_000
# Redis takes no more of who has not logged in.
ANNOUNCED = (b"*1000000\r\n", b"*3\r\n$4\r\nAUTH\r\n$100000000\r\n")


@pytest.fixture(autouse=True)
def _resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda _host, *rest, **more: resolve("127.0.0.1", *rest, **more)
    )


@contextlib.contextmanager
def dialled(
    gateway: GatewayRig, protocol: str, host: str, source: str = CROWD
) -> Iterator[ssl.SSLSocket]:
    """With TLS, and for MySQL greeted."""
    address = ("127.0.0.1", gateway.ports[protocol])
    with socket.create_connection(address, WAIT_S, (source, 0)) as plain:
        if protocol == "mysql":
            assert plain.recv(1_000)
            plain.sendall(wire.frame(ssl_request(CLIENT | wire.SSL, 1 << 24), 1))
        with gateway.context().wrap_socket(plain, server_hostname=host) as made:
            yield made


def trickle(connection: ssl.SSLSocket, data: bytes) -> None:
    """A byte at a time, for as long as somebody listens."""
    began_at = time.monotonic()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        for place in range(len(data)):
            connection.sendall(data[place : place + 1])
            time.sleep(0.1)
            assert time.monotonic() - began_at < WAIT_S, "it was let go on"


@pytest.mark.nightly
def test_a_login_of_mysql_byte_by_byte_has_an_end(
    make_gateway: MakeGateway, mariadb: MariaDb
) -> None:
    gateway = make_gateway(ports={"mysql": 0}, first_request_timeout_s=PATIENCE_S)
    host = mysql_instance(gateway, mariadb, "trickling")
    with dialled(gateway, "mysql", host) as slow:
        trickle(slow, wire.frame(bytes(10_000), 2))
        assert ends(slow)


def test_a_login_of_redis_byte_by_byte_has_an_end(
    make_gateway: MakeGateway, redis_server: Resp
) -> None:
    gateway = make_gateway(ports={"resp": 0}, login_timeout_s=PATIENCE_S)
    host = resp_instance(gateway, redis_server, "trickling-keys")
    with dialled(gateway, "resp", host) as slow:
        trickle(slow, b"*2\r\n$4\r\nAUTH\r\n$16000\r\n" + b"x" * 16_000)
        assert ends(slow)


def test_a_huge_announced_login_is_refused_at_once(
    protocols_gateway: GatewayRig, mariadb: MariaDb, redis_server: Resp
) -> None:
    host = mysql_instance(protocols_gateway, mariadb, "announced")
    with dialled(protocols_gateway, "mysql", host) as client:
        client.sendall(b"\xff\xff\xff\x02")
        assert b"too large" in client.recv(1_000)
        assert ends(client)
    keys = resp_instance(protocols_gateway, redis_server, "announced-keys")
    for announced in ANNOUNCED:
        with dialled(protocols_gateway, "resp", keys) as client:
            client.sendall(announced)
            assert b"unauthenticated" in client.recv(1_000)
            assert ends(client)


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", one_in(2, ["mysql", "resp"]))
def test_a_thousand_half_logins_leave_room_for_another_address(
    make_gateway: MakeGateway, mariadb: MariaDb, redis_server: Resp, protocol: str
) -> None:
    gateway = make_gateway(ports={protocol: 0}, login_wait_s=0.5, handshakes_max=2 * HALF_LOGINS)
    if protocol == "mysql":
        host, half = mysql_instance(gateway, mariadb, "halves"), wire.frame(login(), 2)
    else:
        host, half = resp_instance(gateway, redis_server, "half-keys"), b"*3\r\n$4\r\nAUTH\r\n"
    with contextlib.ExitStack() as held:
        for _ in range(HALF_LOGINS):
            crowd = held.enter_context(dialled(gateway, protocol, host))
            crowd.sendall(half)
        if protocol == "mysql":
            with connect(gateway, host) as other:
                assert rows(other, "SELECT 1") == [(1,)]
        else:
            with connect_resp(gateway, host) as other:
                assert other.ping()
