"""The login as it passes through the gateway, byte by byte, and whatever else is sent instead."""

import contextlib
import socket
import ssl
from typing import Any

import pymysql
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract_tests.gateway.mysql_clients import connect, mysql_instance, receive_packet, rows
from contract_tests.gateway.mysql_packets import auth_switch, ssl_request
from contract_tests.gateway.rig import WAIT_S, GatewayRig, until
from contract_tests.gateway.servers import MariaDb
from gateway.protocols import mysql_wire as wire
from gateway.protocols.interface import FirstRequest
from gateway.protocols.mysql import MySql, MySqlDialogue
from gateway.refusal import Refusal

MARIADB = 0x1D_81FF_F7FE
CLIENT = wire.PROTOCOL_41 | wire.SECURE_CONNECTION | wire.PLUGIN_AUTH | wire.CONNECT_WITH_DB
OK = b"\0\0\0\2\0\0\0"
NATIVE = b"mysql_native_password"


def packet(payload: bytes, sequence: int) -> bytes:
    return wire.frame(payload, sequence)


def login(**members: object) -> bytes:
    given = {
        "capabilities": CLIENT,
        "packet_max_bytes": 0,
        "collation": 45,
        "username": b"app",
        "answer": b"y" * 20,
        "database": b"shop",
        "plugin": NATIVE,
        **members,
    }
    return wire.build_response(wire.HandshakeResponse(**given))  # type: ignore[arg-type]


def greeting(capabilities: int = MARIADB) -> bytes:
    return packet(wire.build_greeting(wire.Greeting("10", capabilities, b"z" * 20, NATIVE, 7)), 0)


def switch(plugin: bytes = NATIVE, scramble: bytes = b"z" * 20) -> bytes:
    return auth_switch(plugin, scramble)


def opened(version: str = "5.5.5-10.11.0-MariaDB", **members: object) -> MySqlDialogue:
    dialogue = MySql(version).dialogue()
    begun = dialogue.begin(bytearray(packet(login(**members), 2)))
    assert isinstance(begun, FirstRequest)
    dialogue.opened(begun.first, "inst_1", {})
    return dialogue


def forwarded(dialogue: MySqlDialogue, capabilities: int = MARIADB) -> wire.HandshakeResponse:
    taken = wire.take_packet(bytearray(dialogue.from_backend(greeting(capabilities)).to_backend))
    assert taken is not None
    assert taken.sequence == 1
    return wire.parse_response(taken.payload)


def test_the_server_is_made_to_ask_anew_and_is_told_all_else() -> None:
    response = forwarded(opened())
    assert response.plugin != NATIVE
    assert (response.username, response.database, response.answer) == (b"app", b"shop", b"y" * 20)
    assert response.capabilities == CLIENT


def test_ids_are_counted_for_each_side() -> None:
    dialogue = opened()
    forwarded(dialogue)
    assert dialogue.from_backend(packet(switch(), 2)).to_client == packet(switch(), 3)
    assert dialogue.from_client(packet(b"answer", 4)).to_backend == packet(b"answer", 3)
    turn = dialogue.from_backend(packet(b"\1more", 4) + packet(OK, 5) + b"rest")
    assert turn.to_client == packet(b"\1more", 5) + packet(OK, 6) + b"rest"
    assert turn.spliced


def test_the_same_question_gets_the_same_answer_without_the_client() -> None:
    dialogue = opened()
    forwarded(dialogue)
    dialogue.from_backend(packet(switch(), 2))
    dialogue.from_client(packet(b"answer", 4))
    again = dialogue.from_backend(packet(switch(), 4))
    assert (again.to_client, again.to_backend) == (b"", packet(b"answer", 5))
    assert dialogue.from_backend(packet(OK, 6)).to_client == packet(OK, 5)


def test_another_question_reaches_the_client() -> None:
    dialogue = opened()
    forwarded(dialogue)
    dialogue.from_backend(packet(switch(), 2))
    dialogue.from_client(packet(b"answer", 4))
    other = switch(scramble=b"w" * 20)
    assert dialogue.from_backend(packet(other, 4)).to_client == packet(other, 5)
    assert dialogue.from_client(packet(b"second", 6)).to_backend == packet(b"second", 5)


def test_a_command_sent_early_waits_for_the_ok_and_is_not_changed() -> None:
    dialogue = opened()
    forwarded(dialogue)
    dialogue.from_backend(packet(switch(), 2))
    command = packet(b"\3SELECT 1", 0)
    turn = dialogue.from_client(packet(b"answer", 4) + command)
    assert turn.to_backend == packet(b"answer", 3)
    turn = dialogue.from_backend(packet(OK, 4))
    assert (turn.to_backend, turn.spliced) == (command, True)


def test_what_the_server_lacks_is_not_agreed_on() -> None:
    extended = CLIENT | 0x1D << 32
    assert forwarded(opened(capabilities=extended)).capabilities == extended
    with pytest.raises(Refusal):
        forwarded(opened(capabilities=extended), 0xDFFF_FFFF)
    # Where MySQL is announced, MariaDB's own are not promised, and so not passed on.
    response = forwarded(opened("8.0.30", capabilities=extended))
    assert response.capabilities == CLIENT


def test_a_user_name_may_name_the_instance_or_not() -> None:
    def begun(username: bytes) -> FirstRequest | None:
        return MySql("8").dialogue().begin(bytearray(packet(login(username=username), 2)))

    assert begun(b"app") == FirstRequest(b"app")
    assert begun(b"app@mariadb-1") == FirstRequest(b"app", "mariadb-1", b"app@mariadb-1")
    assert begun(b"joe@corp@one") == FirstRequest(b"joe@corp", "one", b"joe@corp@one")
    assert begun(b"@corp") == FirstRequest(b"@corp")


SERVER = [
    greeting(),
    packet(switch(), 2),
    packet(b"\1\4", 4),
    packet(OK, 6),
    packet(wire.build_error(wire.ServerError(1045, "28000", "no")), 2),
]
CLIENTS = [packet(login(), 2), packet(b"answer", 4), packet(b"more", 6), packet(b"\3SELECT", 0)]
pieces = st.one_of(st.binary(max_size=80), st.sampled_from(CLIENTS), st.sampled_from(SERVER))


@settings(max_examples=400)
@given(
    hello=st.one_of(st.just(packet(login(), 2)), pieces),
    said=st.lists(st.tuples(st.booleans(), pieces), max_size=12),
)
def test_no_bytes_of_either_side_raise_anything_but_a_refusal(
    hello: bytes, said: list[tuple[bool, bytes]]
) -> None:
    dialogue = MySql("5.5.5-10.11.0-MariaDB").dialogue()
    with contextlib.suppress(Refusal):
        dialogue.before_tls(bytearray(hello))
        begun = dialogue.begin(bytearray(hello))
        if begun is None:
            return
        dialogue.opened(begun.first, "inst_1", {})
        for by_client, data in said:
            turn = dialogue.from_client(data) if by_client else dialogue.from_backend(data)
            if turn.spliced:
                return


@settings(max_examples=60)
@given(cuts=st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_it_does_not_matter_how_bytes_arrive(cuts: list[int]) -> None:
    whole = b"".join((greeting(), packet(switch(), 2), packet(b"\1\3", 4), packet(OK, 5), b"tail"))
    dialogue, said, spliced = opened(), b"", False
    while whole:
        size = cuts.pop() if cuts else len(whole)
        data, whole = whole[:size], whole[size:]
        if spliced:
            said += data
            continue
        turn = dialogue.from_backend(data)
        said, spliced = said + turn.to_client, turn.spliced
    assert spliced
    assert said == packet(switch(), 3) + packet(b"\1\3", 5) + packet(OK, 6) + b"tail"


# Through a gateway, to a server.


@pytest.fixture(scope="module")
def host(protocols_gateway: GatewayRig, mariadb: MariaDb) -> str:
    return mysql_instance(protocols_gateway, mariadb, "fuzzed", connections_max=3)


def sent(gateway: GatewayRig, host: str, plain: bytes, secret: list[bytes]) -> None:
    """`plain` before TLS, or, where it is a request for TLS, `secret` in TLS."""
    with socket.create_connection(("127.0.0.1", gateway.ports["mysql"]), WAIT_S) as connection:
        assert receive_packet(connection, bytearray()) is not None
        connection.sendall(plain)
        if not secret:
            return
        try:
            with gateway.context().wrap_socket(connection, server_hostname=host) as client:
                for data in secret:
                    client.sendall(data)
                client.settimeout(0.05)
                client.recv(1_000)
        except (ssl.SSLError, OSError):
            return


SSL_REQUEST = packet(ssl_request(CLIENT | wire.SSL), 1)


@settings(max_examples=60, deadline=None)
@given(
    plain=st.one_of(st.just(SSL_REQUEST), st.binary(max_size=60)),
    secret=st.lists(pieces, max_size=4),
)
def test_random_clients_neither_end_the_worker_nor_keep_a_place(
    protocols_gateway: GatewayRig, host: str, plain: bytes, secret: list[bytes]
) -> None:
    workers = protocols_gateway.workers()
    sent(protocols_gateway, host, plain, secret if plain == SSL_REQUEST else [])
    assert protocols_gateway.workers() == workers
    until(lambda: can_log_in(protocols_gateway, host), "a place is free")


def can_log_in(gateway: GatewayRig, host: str) -> bool:
    try:
        with connect(gateway, host) as connection:
            return rows(connection, "SELECT 1") == [(1,)]
    except pymysql.err.OperationalError:
        return False


def test_a_client_that_is_reset_in_its_login_leaves_nothing(
    protocols_gateway: GatewayRig, mariadb: MariaDb, host: str
) -> None:
    """Often enough that places, or connections of the server, would run out."""
    for _ in range(20):
        connection = socket.create_connection(
            ("127.0.0.1", protocols_gateway.ports["mysql"]), WAIT_S
        )
        received = bytearray()
        assert receive_packet(connection, received) is not None
        connection.sendall(SSL_REQUEST)
        client = protocols_gateway.context().wrap_socket(connection, server_hostname=host)
        client.sendall(packet(login(), 2))
        told = receive_packet(client, received)
        assert told is not None
        assert told.payload[0] in {wire.AUTH_SWITCH, wire.ERROR}
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
    places = [connect_when_free(protocols_gateway, host) for _ in range(3)]
    for place in places:
        place.close()
    waiting = (
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'unauthenticated user'"
    )
    until(lambda: mariadb.run(waiting) == [(0,)], "the server's connections are closed")


def connect_when_free(gateway: GatewayRig, host: str) -> Any:
    made: list[Any] = []

    def attempt() -> bool:
        with contextlib.suppress(pymysql.err.OperationalError):
            made.append(connect(gateway, host))
        return bool(made)

    until(attempt, "a place is free")
    return made[0]
