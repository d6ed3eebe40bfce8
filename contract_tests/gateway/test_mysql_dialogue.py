"""The login as it passes through the gateway, byte by byte, and whatever else is sent instead."""

import contextlib
import socket
import ssl
from typing import Any

import pymysql
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract_tests.gateway.door import WAIT_S, Door, until
from contract_tests.gateway.mysql_clients import connect, mysql_instance, receive_packet, rows
from contract_tests.gateway.mysql_packets import auth_switch, ssl_request
from contract_tests.gateway.servers import MariaDb
from gateway.protocols import mysql_wire as wire
from gateway.protocols.front import Begun
from gateway.protocols.mysql import MySql, MySqlTalk
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


def opened(version: str = "5.5.5-10.11.0-MariaDB", **members: object) -> MySqlTalk:
    talk = MySql(version).talk()
    begun = talk.begin(bytearray(packet(login(**members), 2)))
    assert isinstance(begun, Begun)
    talk.opened(begun.first, "inst_1", {})
    return talk


def forwarded(talk: MySqlTalk, capabilities: int = MARIADB) -> wire.HandshakeResponse:
    taken = wire.take_packet(bytearray(talk.from_backend(greeting(capabilities)).to_backend))
    assert taken is not None
    assert taken.sequence == 1
    return wire.parse_response(taken.payload)


def test_the_server_is_made_to_ask_anew_and_is_told_all_else() -> None:
    response = forwarded(opened())
    assert response.plugin != NATIVE
    assert (response.username, response.database, response.answer) == (b"app", b"shop", b"y" * 20)
    assert response.capabilities == CLIENT


def test_ids_are_counted_for_each_side() -> None:
    talk = opened()
    forwarded(talk)
    assert talk.from_backend(packet(switch(), 2)).to_client == packet(switch(), 3)
    assert talk.from_client(packet(b"answer", 4)).to_backend == packet(b"answer", 3)
    turn = talk.from_backend(packet(b"\1more", 4) + packet(OK, 5) + b"rest")
    assert turn.to_client == packet(b"\1more", 5) + packet(OK, 6) + b"rest"
    assert turn.spliced


def test_the_same_question_gets_the_same_answer_without_the_client() -> None:
    talk = opened()
    forwarded(talk)
    talk.from_backend(packet(switch(), 2))
    talk.from_client(packet(b"answer", 4))
    again = talk.from_backend(packet(switch(), 4))
    assert (again.to_client, again.to_backend) == (b"", packet(b"answer", 5))
    assert talk.from_backend(packet(OK, 6)).to_client == packet(OK, 5)


def test_another_question_reaches_the_client() -> None:
    talk = opened()
    forwarded(talk)
    talk.from_backend(packet(switch(), 2))
    talk.from_client(packet(b"answer", 4))
    other = switch(scramble=b"w" * 20)
    assert talk.from_backend(packet(other, 4)).to_client == packet(other, 5)
    assert talk.from_client(packet(b"second", 6)).to_backend == packet(b"second", 5)


def test_a_command_sent_early_waits_for_the_ok_and_is_not_changed() -> None:
    talk = opened()
    forwarded(talk)
    talk.from_backend(packet(switch(), 2))
    command = packet(b"\3SELECT 1", 0)
    turn = talk.from_client(packet(b"answer", 4) + command)
    assert turn.to_backend == packet(b"answer", 3)
    turn = talk.from_backend(packet(OK, 4))
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
    def begun(username: bytes) -> Begun | None:
        return MySql("8").talk().begin(bytearray(packet(login(username=username), 2)))

    assert begun(b"app") == Begun(b"app")
    assert begun(b"app@mariadb-1") == Begun(b"app", "mariadb-1", b"app@mariadb-1")
    assert begun(b"joe@corp@one") == Begun(b"joe@corp", "one", b"joe@corp@one")
    assert begun(b"@corp") == Begun(b"@corp")


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
    talk = MySql("5.5.5-10.11.0-MariaDB").talk()
    with contextlib.suppress(Refusal):
        talk.before_tls(bytearray(hello))
        begun = talk.begin(bytearray(hello))
        if begun is None:
            return
        talk.opened(begun.first, "inst_1", {})
        for by_client, data in said:
            turn = talk.from_client(data) if by_client else talk.from_backend(data)
            if turn.spliced:
                return


@settings(max_examples=60)
@given(cuts=st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_it_does_not_matter_how_bytes_arrive(cuts: list[int]) -> None:
    whole = b"".join((greeting(), packet(switch(), 2), packet(b"\1\3", 4), packet(OK, 5), b"tail"))
    talk, said, spliced = opened(), b"", False
    while whole:
        size = cuts.pop() if cuts else len(whole)
        data, whole = whole[:size], whole[size:]
        if spliced:
            said += data
            continue
        turn = talk.from_backend(data)
        said, spliced = said + turn.to_client, turn.spliced
    assert spliced
    assert said == packet(switch(), 3) + packet(b"\1\3", 5) + packet(OK, 6) + b"tail"


# Through a gateway, to a server.


@pytest.fixture(scope="module")
def host(fronts_door: Door, mariadb: MariaDb) -> str:
    return mysql_instance(fronts_door, mariadb, "fuzzed", connections_max=3)


def sent(door: Door, host: str, plain: bytes, secret: list[bytes]) -> None:
    """`plain` before TLS, or, where it is a request for TLS, `secret` in TLS."""
    with socket.create_connection(("127.0.0.1", door.ports["mysql"]), WAIT_S) as connection:
        assert receive_packet(connection, bytearray()) is not None
        connection.sendall(plain)
        if not secret:
            return
        try:
            with door.context().wrap_socket(connection, server_hostname=host) as client:
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
    fronts_door: Door, host: str, plain: bytes, secret: list[bytes]
) -> None:
    workers = fronts_door.workers()
    sent(fronts_door, host, plain, secret if plain == SSL_REQUEST else [])
    assert fronts_door.workers() == workers
    until(lambda: can_log_in(fronts_door, host), "a place is free")


def can_log_in(door: Door, host: str) -> bool:
    try:
        with connect(door, host) as connection:
            return rows(connection, "SELECT 1") == [(1,)]
    except pymysql.err.OperationalError:
        return False


def test_a_client_that_is_reset_in_its_login_leaves_nothing(
    fronts_door: Door, mariadb: MariaDb, host: str
) -> None:
    """Often enough that places, or connections of the server, would run out."""
    for _ in range(20):
        connection = socket.create_connection(("127.0.0.1", fronts_door.ports["mysql"]), WAIT_S)
        received = bytearray()
        assert receive_packet(connection, received) is not None
        connection.sendall(SSL_REQUEST)
        client = fronts_door.context().wrap_socket(connection, server_hostname=host)
        client.sendall(packet(login(), 2))
        told = receive_packet(client, received)
        assert told is not None
        assert told.payload[0] in {wire.AUTH_SWITCH, wire.ERROR}
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
    places = [connect_when_free(fronts_door, host) for _ in range(3)]
    for place in places:
        place.close()
    waiting = (
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'unauthenticated user'"
    )
    until(lambda: mariadb.run(waiting) == [(0,)], "the server's connections are closed")


def connect_when_free(door: Door, host: str) -> Any:
    made: list[Any] = []

    def attempt() -> bool:
        with contextlib.suppress(pymysql.err.OperationalError):
            made.append(connect(door, host))
        return bool(made)

    until(attempt, "a place is free")
    return made[0]
