"""Whom the MySQL front turns away, and with what words."""

import concurrent.futures
import socket
import time
from collections.abc import Iterator

import pymysql
import pytest

from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.mysql_clients import (
    command_line,
    connect,
    connect_unnamed,
    mysql_instance,
    receive_packet,
    rows,
)
from contract_tests.gateway.mysql_packets import ssl_request
from contract_tests.gateway.rig import WAIT_S, GatewayRig, until
from contract_tests.gateway.servers import MariaDb
from contract_tests.gateway.test_allow_list import proxied
from contract_tests.gateway.test_wake import Cell
from gateway.protocols import mysql_wire as wire

Refused = pymysql.err.OperationalError


@pytest.fixture(scope="module")
def host(protocols_gateway: GatewayRig, mariadb: MariaDb) -> str:
    return mysql_instance(protocols_gateway, mariadb, "strict")


def test_a_plaintext_login_is_told_to_use_tls(protocols_gateway: GatewayRig, host: str) -> None:
    with pytest.raises(Refused) as refused:
        connect(protocols_gateway, host, ssl=None, ssl_disabled=True)
    assert refused.value.args[0] == 3159
    assert "insecure transport" in refused.value.args[1]
    ran = command_line(protocols_gateway, host, "--execute=SELECT 1", tls=False)
    assert ran.stdout == ""
    assert "ERROR 3159 (HY000): Connections using insecure transport" in ran.stderr


def test_after_the_request_for_tls_nothing_is_said_in_the_clear(
    protocols_gateway: GatewayRig, host: str
) -> None:
    """Promise 47: also behind the step that leads to TLS."""
    capabilities = wire.PROTOCOL_41 | wire.SECURE_CONNECTION | wire.PLUGIN_AUTH
    request = ssl_request(capabilities | wire.SSL)
    login = wire.HandshakeResponse(capabilities, 0, 45, b"app", b"x" * 20, plugin=b"")
    received = bytearray()
    with socket.create_connection(("127.0.0.1", protocols_gateway.ports["mysql"]), WAIT_S) as plain:
        assert receive_packet(plain, received) is not None
        plain.sendall(wire.frame(request, 1))
        plain.sendall(wire.frame(wire.build_response(login), 2))
        assert receive_packet(plain, received) is None


def test_the_administrator_does_not_come_from_outside(
    protocols_gateway: GatewayRig, mariadb: MariaDb, host: str
) -> None:
    """However the name is written, and though the password is right."""
    mariadb.run("CREATE USER IF NOT EXISTS menagerie@localhost IDENTIFIED BY 'right'")
    label = host.partition(".")[0]
    reserved = ("menagerie", "Menagerie", "menagerie ", "'menagerie'", "menagerie_00ff00ff00ff00ff")
    for user in (*reserved, f"menagerie@{label}", f"menagerie_00ff00ff00ff00ff@{label}"):
        with pytest.raises(Refused, match="Access denied for user 'menagerie'"):
            connect(protocols_gateway, host, user, "right")
    with pytest.raises(Refused, match="Access denied for user 'menagerie'"):
        connect_unnamed(protocols_gateway, f"menagerie@{label}", password="right")


@pytest.mark.parametrize("user", ["app", "app@", "app@nowhere", "@", "app@ü"])
def test_who_names_no_instance_is_told_how(
    protocols_gateway: GatewayRig, host: str, user: str
) -> None:
    with pytest.raises(Refused) as refused:
        connect_unnamed(protocols_gateway, user)
    assert refused.value.args[0] == 1045
    assert "SNI" in refused.value.args[1]
    assert "@" in refused.value.args[1]


def test_an_instance_of_another_protocol_is_not_found(
    protocols_gateway: GatewayRig, host: str
) -> None:
    http = protocols_gateway.add_instance("web")
    with pytest.raises(Refused, match="SNI"):
        connect_unnamed(protocols_gateway, f"app@{http.partition('.')[0]}")
    with pytest.raises(Refused, match=r"UNRECOGNIZED_NAME|unrecognized name"):
        connect(protocols_gateway, http)


def test_over_the_limit_is_said_and_room_is_given_back(
    protocols_gateway: GatewayRig, mariadb: MariaDb
) -> None:
    limited = mysql_instance(protocols_gateway, mariadb, "limited", connections_max=2)
    with connect(protocols_gateway, limited), connect(protocols_gateway, limited):
        with pytest.raises(Refused) as refused:
            connect(protocols_gateway, limited)
        assert refused.value.args[0] == 1040
        assert refused.value.args[1].startswith("Too many connections")
        ran = command_line(protocols_gateway, limited, user=f"app@{limited.partition('.')[0]}")
        assert "ERROR 1040 (08004): Too many connections" in ran.stderr
    until(lambda: connects(protocols_gateway, limited), "room is given back")


def connects(gateway: GatewayRig, host: str) -> bool:
    try:
        connect(gateway, host).close()
    except Refused:
        return False
    return True


def test_the_servers_own_limit_is_said_in_its_words(make_gateway: MakeGateway) -> None:
    """A server that is full says so instead of a greeting, and without an SQLSTATE."""
    gateway = make_gateway(ports={"mysql": 0})

    async def full(_: object, writer: "object") -> None:
        writer.write(wire.frame(b"\xff\x10\x04Too many connections", 0))  # type: ignore[attr-defined]

    host = gateway.add_instance("full", full, protocol="mysql")
    with pytest.raises(Refused) as refused:
        connect(gateway, host)
    assert refused.value.args == (1040, "Too many connections")


def test_only_listed_addresses_get_in_by_either_way(
    protocols_gateway: GatewayRig, mariadb: MariaDb
) -> None:
    closed = mysql_instance(protocols_gateway, mariadb, "closed", allow_cidrs=["192.0.2.0/24"])
    before = mariadb.run("SHOW GLOBAL STATUS LIKE 'Connections'")
    with pytest.raises(Refused, match=r"Lost connection|EOF|reset"):
        connect(protocols_gateway, closed)
    with pytest.raises(Refused, match=r"Lost connection|EOF|reset"):
        connect_unnamed(protocols_gateway, f"app@{closed.partition('.')[0]}")
    after = mariadb.run("SHOW GLOBAL STATUS LIKE 'Connections'")
    # The second of the two that ask is the only one more.
    assert int(after[0][1]) - int(before[0][1]) == 1
    protocols_gateway.set_route(closed, allow_cidrs=["127.0.0.1"])
    until(lambda: connects(protocols_gateway, closed), "the list applies")


def test_a_paused_instance_says_so(protocols_gateway: GatewayRig, mariadb: MariaDb) -> None:
    text = "the instance is paused; resume it to connect"
    paused = mysql_instance(protocols_gateway, mariadb, "paused-my", state="paused", refusal=text)
    with pytest.raises(Refused, match=r"(?i)the instance is paused; resume it to connect"):
        connect(protocols_gateway, paused)


def test_a_connection_wakes_an_instance_and_is_held(
    make_gateway: MakeGateway, mariadb: MariaDb
) -> None:
    gateway = make_gateway(ports={"mysql": 0})
    cell = Cell(gateway)
    host = mysql_instance(gateway, mariadb, "sleepy", state="idle")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        held = pool.submit(connect, gateway, host)
        until(lambda: cell.asked, "the cell is asked")
        time.sleep(0.2)
        assert not held.done()
        cell.go.set()
        with held.result(30) as connection:
            assert rows(connection, "SELECT 1") == [(1,)]
    assert len(cell.asked) == 1


def test_the_administrator_wakes_nobody(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(ports={"mysql": 0})
    cell = Cell(gateway)
    host = gateway.add_instance("asleep-my", backend=False, protocol="mysql", state="idle")
    with pytest.raises(Refused, match="Access denied"):
        connect(gateway, host, "menagerie")
    assert cell.asked == []


def test_behind_a_balancer_the_greeting_waits_for_its_header(
    make_gateway: MakeGateway, mariadb: MariaDb
) -> None:
    gateway = make_gateway(ports={"mysql": 0}, proxy_cidrs=["127.0.0.0/8"])
    host = mysql_instance(gateway, mariadb, "balanced", allow_cidrs=["203.0.113.7"])
    with socket.create_connection(("127.0.0.1", gateway.ports["mysql"]), WAIT_S) as plain:
        plain.settimeout(0.3)
        with pytest.raises(TimeoutError):
            plain.recv(1)
    listed = connect(gateway, host, preface=proxied("203.0.113.7"))
    with listed as connection:
        assert rows(connection, "SELECT 1") == [(1,)]
    with pytest.raises(Refused, match=r"Lost connection|EOF|reset"):
        connect(gateway, host, preface=proxied("203.0.113.8"))


@pytest.mark.parametrize("sent", [b"", b"\x20", wire.frame(b"x" * 32, 1)[:20]])
def test_a_client_that_says_nothing_times_out(hasty_mysql: GatewayRig, sent: bytes) -> None:
    received = bytearray()
    with socket.create_connection(("127.0.0.1", hasty_mysql.ports["mysql"]), WAIT_S) as plain:
        assert receive_packet(plain, received) is not None
        plain.sendall(sent)
        assert receive_packet(plain, received) is None


@pytest.fixture(scope="module")
def hasty_mysql() -> Iterator[GatewayRig]:
    made = GatewayRig(ports={"mysql": 0}, handshake_timeout_s=1.0)
    yield made
    made.close()


def test_a_login_in_drops_times_out(make_gateway: MakeGateway, mariadb: MariaDb) -> None:
    """A slow-loris inside TLS: it takes no place, and the time for it is over all its bytes."""
    gateway = make_gateway(ports={"mysql": 0}, first_request_timeout_s=1.0)
    host = mysql_instance(gateway, mariadb, "dripping-my", connections_max=1)
    request = ssl_request()
    with socket.create_connection(("127.0.0.1", gateway.ports["mysql"]), WAIT_S) as plain:
        assert receive_packet(plain, bytearray()) is not None
        plain.sendall(wire.frame(request, 1))
        with gateway.context().wrap_socket(plain, server_hostname=host) as client:
            client.sendall(b"\x50\0\0\2")
            client.settimeout(0.1)
            began = time.monotonic()
            while time.monotonic() - began < WAIT_S:
                try:
                    client.sendall(b"x")
                    if client.recv(1) == b"":
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            else:
                pytest.fail("a login of ten bytes a second was waited for")
            # A login of ours that stalls is turned away as well, so one of several must do.
            until(lambda: connects(gateway, host), "the place is free")


def test_neither_a_probe_nor_a_half_login_wakes_anybody(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(ports={"mysql": 0}, first_request_timeout_s=0.5)
    cell = Cell(gateway)
    gateway.add_instance("undisturbed-my", backend=False, protocol="mysql", state="idle")
    received = bytearray()
    with socket.create_connection(("127.0.0.1", gateway.ports["mysql"]), WAIT_S) as plain:
        assert receive_packet(plain, received) is not None
    assert cell.asked == []


def test_a_server_that_does_not_answer_is_said(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(ports={"mysql": 0}, backend_retry_s=0.3)
    host = gateway.add_instance("absent-my", backend=False, protocol="mysql")
    with pytest.raises(Refused, match="The instance is not responding"):
        connect(gateway, host)


def test_a_client_that_cannot_switch_plugins_is_told(
    protocols_gateway: GatewayRig, host: str
) -> None:
    context = protocols_gateway.context()
    capabilities = wire.PROTOCOL_41 | wire.SECURE_CONNECTION | wire.LONG_PASSWORD
    request = ssl_request(capabilities | wire.SSL)
    login = wire.HandshakeResponse(capabilities, 0, 45, b"app", b"x" * 20)
    received = bytearray()
    plain = socket.create_connection(("127.0.0.1", protocols_gateway.ports["mysql"]), WAIT_S)
    assert receive_packet(plain, received) is not None
    plain.sendall(wire.frame(request, 1))
    with context.wrap_socket(plain, server_hostname=host) as client:
        client.sendall(wire.frame(wire.build_response(login), 2))
        packet = receive_packet(client, received)
    assert packet is not None
    assert packet.sequence == 3
    error = wire.parse_error(packet.payload)
    assert error.code == 1251
    assert "upgrading" in error.message
