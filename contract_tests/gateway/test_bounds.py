"""A crowd from one address leaves others served, and who has not logged in takes nobody's place."""

import contextlib
import select
import socket
import ssl
from collections.abc import Iterator

import psycopg
import pytest

from contract_tests.gateway.backends import http
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.postgres_clients import (
    SSL_REQUEST,
    Postgres,
    add_postgres,
    connect,
    dial,
    startup,
)
from contract_tests.gateway.rig import (
    WAIT_S,
    ZONE,
    GatewayRig,
    is_hung_up_on,
    raw_get,
    read_answer,
    until,
)
from contract_tests.gateway.test_allow_list import proxied
from gateway.addresses import customer
from gateway.protocols.https import HttpsDialogue
from gateway.protocols.resp import RespDialogue

CROWD = "127.0.0.2"
UNFINISHED = b"POST /v1/x HTTP/1.1\r\nhost: x\r\nauthorization: x\r\ncontent-length: 9\r\n\r\nx"
ANYBODY = b"GET /name HTTP/1.1\r\nhost: x\r\n\r\n"


@contextlib.contextmanager
def not_logged_in(
    gateway: GatewayRig, host: str, count: int, source: str = CROWD
) -> Iterator[list[ssl.SSLSocket]]:
    """So many sessions of PostgreSQL from another address, which have sent a startup packet."""
    with contextlib.ExitStack() as held:
        made = []
        for _ in range(count):
            plain = held.enter_context(dial(gateway, source))
            plain.sendall(SSL_REQUEST)
            assert plain.recv(1) == b"S"
            made.append(
                held.enter_context(gateway.context().wrap_socket(plain, server_hostname=host))
            )
            made[-1].sendall(startup(user="app", database="postgres"))
        yield made


def test_who_has_not_logged_in_takes_no_place_of_those_who_have(
    pg_gateway: GatewayRig, postgres: Postgres
) -> None:
    host = add_postgres(pg_gateway, "crowded", postgres, connections_max=2)
    with not_logged_in(pg_gateway, host, 22):
        with connect(pg_gateway, host) as one, connect(pg_gateway, host) as two:
            assert [c.execute("SELECT 1").fetchone() for c in (one, two)] == [(1,), (1,)]
            with pytest.raises(psycopg.OperationalError, match="allows 2"):
                connect(pg_gateway, host)
        until(lambda: _connects(pg_gateway, host), "places are given back")


def _connects(gateway: GatewayRig, host: str) -> bool:
    try:
        connect(gateway, host).close()
    except psycopg.OperationalError:
        return False
    return True


def test_a_login_has_an_end(make_gateway: MakeGateway, postgres: Postgres) -> None:
    gateway = make_gateway(ports={"postgres": 0}, login_timeout_s=1.0)
    host = add_postgres(gateway, "slow", postgres)
    with not_logged_in(gateway, host, 1) as (slow,), connect(gateway, host) as fast:
        while slow.recv(1_000):  # the server's question, and then the end
            pass
        assert fast.execute("SELECT 1").fetchone() == (1,)


def test_whoever_waits_too_long_for_a_login_is_told(
    make_gateway: MakeGateway, postgres: Postgres
) -> None:
    gateway = make_gateway(
        ports={"postgres": 0}, logins_max=3, address_logins_max=2, login_wait_s=0.2
    )
    host = add_postgres(gateway, "full", postgres)
    with not_logged_in(gateway, host, 3) as crowd:
        # Two of one address are the most, so that the third place is another's.
        said = b"".join(each.recv(1_000) for each in crowd)
        assert b"53300" in said
        assert b"still logging in" in said
        with connect(gateway, host) as other:
            assert other.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize(
    ("said", "let_in"),
    [
        ([b"+OK\r\n"], True),
        ([b"%7\r\n$6\r\nserver\r\n"], True),
        ([b"-NOAUTH Authentication required.\r\n"], False),
        ([b"-NOAUTH x\r\n-WRONG", b"PASS y\r\n", b"+OK\r\n"], True),
        ([b"-WRONGPASS +OK\r", b"\n"], False),
        ([b"+RESET\r\n"], False),
        ([b"+RE", b"SET\r\n", b"-ERR\r\n"], False),
        ([b"+", b"OK\r\n"], True),
    ],
)
def test_an_error_of_redis_lets_nobody_in(said: list[bytes], let_in: bool) -> None:
    dialogue = RespDialogue()
    dialogue.opened(b"", "inst_x", {})
    assert [dialogue.from_backend(part).spliced for part in said][-1] == let_in


def test_https_counts_who_shows_credentials_that_are_good(gateway: GatewayRig) -> None:
    host = gateway.add_instance("https-crowd", connections_max=1)
    with contextlib.ExitStack() as held:
        for _ in range(8):
            crowd = held.enter_context(gateway.connect(host, source=CROWD))
            crowd.sendall(ANYBODY)
            assert read_answer(crowd)[0] == 200
        assert raw_get(held.enter_context(gateway.connect(host)))[0] == 200
        refused, _, body = raw_get(held.enter_context(gateway.connect(host)))
        assert refused == 503
        assert b"this size allows 1" in body


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1",
        b"GET / HTTP/1.1",
        b"\r\nGET /health HTTP/1.1",
        b"GET //health HTTP/1.1",
        b"GET /./health HTTP/1.1",
        b"GET /%68ealth HTTP/1.1",
        b"GET http://x/health HTTP/1.1",
        b"OPTIONS /query HTTP/1.1",
    ],
)
def test_what_anybody_may_ask_lets_nobody_in(head: bytes) -> None:
    dialogue = HttpsDialogue()
    assert dialogue.begin(bytearray(head + b"\r\nauthorization: x\r\n\r\n"))
    dialogue.opened(b"", "inst_x", {})
    assert not dialogue.from_backend(b"HTTP/1.1 200 OK\r\n\r\n").spliced


def test_https_without_a_login_ends(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(login_timeout_s=0.5)
    host = gateway.add_instance("https-idle")
    with gateway.connect(host) as idle, gateway.connect(host) as working:
        assert raw_get(working)[0] == 200
        idle.sendall(ANYBODY)
        assert read_answer(idle)[0] == 200
        assert idle.recv(1) == b""
        assert raw_get(working)[0] == 200


def test_a_crowd_of_unfinished_requests_leaves_the_cell_to_others(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway(cell_address_connections_max=3, cell_connections_max=10)
    gateway.serve(gateway.cell_socket, http("cell"))
    cell = f"cell.{ZONE}"
    with contextlib.ExitStack() as held:
        crowd = [held.enter_context(gateway.connect(cell, source=CROWD)) for _ in range(12)]
        for each in crowd:
            each.sendall(UNFINISHED)
        # Which of them came first is not known; all but three are told.
        refused = 0
        for each in crowd:
            each.settimeout(2.0)
            with contextlib.suppress(TimeoutError):
                status, headers, body = read_answer(each)
                assert (status, headers["retry-after"]) == (503, "1")
                assert b"the cell allows 3 from one address" in body
                refused += 1
        assert refused == 9
        assert raw_get(held.enter_context(gateway.connect(cell)))[0] == 200


def test_two_addresses_that_hold_all_logins_give_way(
    make_gateway: MakeGateway, postgres: Postgres
) -> None:
    gateway = make_gateway(
        ports={"postgres": 0}, logins_max=6, address_logins_max=3, login_wait_s=3_600
    )
    host = add_postgres(gateway, "held", postgres)
    with (
        not_logged_in(gateway, host, 3) as first,
        not_logged_in(gateway, host, 3, "127.0.0.3") as second,
    ):
        for each in (*first, *second):
            assert each.recv(1)  # the engine's question: all places are taken
        with connect(gateway, host) as owner:
            assert owner.execute("SELECT 1").fetchone() == (1,)
        ended = [_is_over(each) for each in (*first, *second)]
        assert ended.count(True) == 1, "only so many give way as others need"


def test_all_logins_of_another_worker_give_way_too(
    make_gateway: MakeGateway, postgres: Postgres
) -> None:
    """Whichever worker the owner comes to, and whichever hold the crowd."""
    options = {"workers": 4, "logins_max": 2, "address_logins_max": 1, "login_wait_s": 3_600}
    gateway = make_gateway(ports={"postgres": 0}, **options)
    host = add_postgres(gateway, "workers", postgres)
    with (
        not_logged_in(gateway, host, 1) as first,
        not_logged_in(gateway, host, 1, "127.0.0.3") as second,
    ):
        assert first[0].recv(1)
        assert second[0].recv(1)
        for _ in range(8):
            with connect(gateway, host) as owner:
                assert owner.execute("SELECT 1").fetchone() == (1,)


def _readable(connections: tuple[socket.socket, ...]) -> list[socket.socket]:
    return select.select(connections, [], [], WAIT_S)[0]


def _is_over(connection: ssl.SSLSocket) -> bool:
    connection.settimeout(0.2)
    try:
        while connection.recv(1_000):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize(
    ("head", "rest", "stays"),
    [
        (b"POST /query HTTP/1.1\r\nauthorization: x\r\ncontent-length: 3\r\n\r\nab", b"c", True),
        (b"GET /query HTTP/1.1\r\nauthorization: x\r\n\r\n", b"", True),
        (b"POST /query HTTP/1.1\r\nauthorization: x\r\ncontent-length: 3\r\n\r\nab", b"", False),
        (b"POST /query HTTP/1.1\r\ncontent-length: 0\r\n\r\n", b"", False),
        (
            b"POST /query HTTP/1.1\r\nauthorization: x\r\ntransfer-encoding: chunked\r\n\r\n",
            b"0\r\n\r\n",
            False,
        ),
        # Longer than the gateway waits for, and never whole: the engine waits for the rest.
        (b"GET /query HTTP/1.1\r\nauthorization: x\r\n" + b"a: b\r\n" * 12_000, b"a: b\r\n", False),
    ],
)
def test_a_whole_request_that_is_worked_on_is_not_broken_off(
    head: bytes, rest: bytes, stays: bool
) -> None:
    dialogue = HttpsDialogue()
    assert dialogue.begin(bytearray(head))
    dialogue.opened(head, "inst_x", {})
    dialogue.from_client(rest)
    assert dialogue.evictable is not stays
    dialogue.from_backend(b"HTTP/1.1 401 Unauthorized\r\n\r\n")
    assert dialogue.evictable


@pytest.mark.parametrize("agreed", [None, "http/1.1"])
def test_the_beginning_of_http_2_lets_nobody_in_where_it_is_not_spoken(agreed: str | None) -> None:
    """An engine of HTTP/1.1 waits for the rest: 18 bytes would hold a connection of the size."""
    first = b"PRI * HTTP/2.0\r\n\r\n"
    dialogue = HttpsDialogue()
    dialogue.tls_agreed(agreed)
    assert dialogue.begin(bytearray(first))
    assert not dialogue.opened(first, "inst_x", {}).spliced
    assert dialogue.evictable
    assert not dialogue.from_backend(b"HTTP/1.1 408 Request Timeout\r\n\r\n").spliced
    spoken = HttpsDialogue()
    spoken.tls_agreed("h2")
    assert spoken.begin(bytearray(first))
    assert spoken.opened(first, "inst_x", {}).spliced


def test_who_holds_all_of_the_cell_gives_way_to_others(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(cell_address_connections_max=3, cell_connections_max=6)
    gateway.serve(gateway.cell_socket, http("cell"))
    cell = f"cell.{ZONE}"
    with contextlib.ExitStack() as held:
        for source in (CROWD, "127.0.0.3"):
            for _ in range(3):
                crowd = held.enter_context(gateway.connect(cell, source=source))
                assert raw_get(crowd)[0] == 200
        for _ in range(2):
            assert raw_get(held.enter_context(gateway.connect(cell)))[0] == 200


def test_unfinished_handshakes_of_a_few_addresses_make_room_for_others(
    make_gateway: MakeGateway,
) -> None:
    """The one who was there first is not the one who goes, but one of those who have most."""
    gateway = make_gateway(handshakes_max=9, address_handshakes_max=4)
    with contextlib.ExitStack() as held:
        patient = held.enter_context(gateway.dial(source="127.0.0.4"))
        crowds = [
            [held.enter_context(gateway.dial(source=source)) for _ in range(4)]
            for source in (CROWD, "127.0.0.3")
        ]
        held.enter_context(gateway.dial(source="127.0.0.5"))
        oldest = (crowds[0][0], crowds[1][0])
        assert sum(is_hung_up_on(each) for each in _readable(oldest)) == 1
        for other in (patient, crowds[0][1], crowds[1][1]):
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(1)


def test_unfinished_handshakes_of_one_address_make_room_for_their_own(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway(handshakes_max=20, address_handshakes_max=5)
    host = gateway.add_instance("handshakes")
    with contextlib.ExitStack() as held:
        patient = held.enter_context(gateway.dial(source="127.0.0.3"))
        crowd = [held.enter_context(gateway.dial(source=CROWD)) for _ in range(100)]
        assert gateway.get(host).status_code == 200
        assert is_hung_up_on(crowd[0])
        patient.setblocking(False)
        with pytest.raises(BlockingIOError):
            patient.recv(1)


def test_behind_a_balancer_the_address_is_the_one_it_tells(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(proxy_cidrs=["127.0.0.0/8"], address_handshakes_max=2)
    with contextlib.ExitStack() as held:
        made = []
        for number in range(6):
            made.append(held.enter_context(gateway.dial()))
            made[-1].sendall(proxied(f"192.0.2.{number}"))
        crowd = [held.enter_context(gateway.dial()) for _ in range(3)]
        for each in crowd:
            each.sendall(proxied("192.0.2.9"))
        assert is_hung_up_on(crowd[0])
        for each in made:
            each.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.recv(1)


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
    ],
)
def test_ipv6_is_counted_by_its_64(address: str, counted: str) -> None:
    assert customer(address) == counted


def test_who_hangs_up_while_waiting_for_a_login_waits_no_longer(
    make_gateway: MakeGateway, postgres: Postgres
) -> None:
    """Or those who come after a crowd would wait behind it for as long as it would have."""
    gateway = make_gateway(
        ports={"postgres": 0}, logins_max=2, address_logins_max=1, login_wait_s=3_600
    )
    host = add_postgres(gateway, "left", postgres, connections_max=4)
    with not_logged_in(gateway, host, 1) as (held,):
        assert held.recv(1)
        with not_logged_in(gateway, host, 4):
            assert not _waits(gateway, host), "their address has all places of those who wait"
        until(lambda: _waits(gateway, host), "the places of those who left are given back")


def _waits(gateway: GatewayRig, host: str) -> bool:
    """Whether one more does, and is not refused at once."""
    with not_logged_in(gateway, host, 1) as (one,):
        one.settimeout(0.5)
        try:
            one.recv(1)
        except TimeoutError:
            return True
        return False
