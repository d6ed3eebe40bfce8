"""Clients that take their time, on the port of every protocol: none is waited for without end."""

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Iterator

import psutil
import psycopg
import pytest

from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.postgres_clients import (
    SSL_REQUEST,
    Postgres,
    add_postgres,
    connect,
)
from contract_tests.gateway.rig import WAIT_S, GatewayRig, until
from gateway import ports

PATIENCE_S = 1.0
GROWTH_MAX_BYTES = 64 * 2**20
# The beginning of something that each protocol would wait for the rest of.
HALVES = {
    "postgres": [SSL_REQUEST[:5], SSL_REQUEST, SSL_REQUEST + b"\x16\x03\x01\x02\x00\x01"],
    "mysql": [b"\x20\x00", b"\x20\x00\x00\x01\x85\xa6\xff\x01"],
}
WITH_TLS = [b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]


@pytest.fixture(scope="module")
def short_gateway() -> Iterator[GatewayRig]:
    made = GatewayRig(
        ports=dict.fromkeys(ports.DEFAULT, 0),
        handshake_timeout_s=PATIENCE_S,
    )
    yield made
    made.close()


def dial(gateway: GatewayRig, protocol: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.ports[protocol]), WAIT_S)


def ends(connection: socket.socket) -> bool:
    """Reads to the end, whatever is said before it; a reset is an end too."""
    try:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while connection.recv(10_000):
                pass
    except TimeoutError:
        return False
    return True


def test_half_a_beginning_times_out(short_gateway: GatewayRig) -> None:
    """On every port at once, since all that is done is to wait."""
    with contextlib.ExitStack() as held:
        silent = {}
        for protocol in ports.DEFAULT:
            for half in [b"", *WITH_TLS, *HALVES.get(protocol, [])]:
                made = held.enter_context(dial(short_gateway, protocol))
                made.sendall(half)
                silent[protocol, half] = made
        assert [key for key, each in silent.items() if not ends(each)] == []


@pytest.mark.parametrize("protocol", ["postgres", "mysql"])
def test_one_byte_at_a_time_times_out(short_gateway: GatewayRig, protocol: str) -> None:
    packet = SSL_REQUEST if protocol == "postgres" else b"\x20\x00\x00\x01" + bytes(32)
    began_at = time.monotonic()
    with dial(short_gateway, protocol) as connection:
        with contextlib.suppress(ConnectionError):
            for byte in packet * 40:
                connection.sendall(bytes((byte,)))
                time.sleep(0.1)
                if time.monotonic() - began_at > WAIT_S:
                    pytest.fail("it was let go on")
        assert ends(connection)


def test_a_startup_that_does_not_end_times_out(
    make_gateway: MakeGateway, postgres: Postgres
) -> None:
    gateway = make_gateway(ports={"https": 0, "postgres": 0}, first_request_timeout_s=PATIENCE_S)
    host = add_postgres(gateway, "startup-half", postgres)
    with dial(gateway, "postgres") as plain:
        plain.sendall(SSL_REQUEST)
        assert plain.recv(1) == b"S"
        with gateway.context().wrap_socket(plain, server_hostname=host) as connection:
            connection.sendall(struct.pack("!II", 100, 3 << 16) + b"user\0app\0")
            assert ends(connection)


def test_a_session_on_which_nothing_moves_is_reaped(
    make_gateway: MakeGateway, postgres: Postgres
) -> None:
    gateway = make_gateway(ports={"https": 0, "postgres": 0}, idle_timeout_s=1.0)
    host = add_postgres(gateway, "session-quiet", postgres)
    # A login that stalls is reaped as well, so one of several must do.
    with until(lambda: connected(gateway, host), "a session") as connection:
        pid = connection.info.backend_pid
        until(lambda: not _runs(postgres, pid), "the server has seen it end")


def connected(gateway: GatewayRig, host: str) -> "psycopg.Connection[tuple[object, ...]] | None":
    try:
        return connect(gateway, host)
    except psycopg.OperationalError:
        return None


def _runs(postgres: Postgres, pid: int) -> bool:
    with postgres.administrator() as administrator:
        found = administrator.execute("SELECT FROM pg_stat_activity WHERE pid = %s", (pid,))
        return bool(found.fetchall())


@pytest.mark.nightly
def test_a_result_that_nobody_reads_costs_little_memory(
    make_gateway: MakeGateway, postgres: Postgres
) -> None:
    gateway = make_gateway(ports={"https": 0, "postgres": 0})
    host = add_postgres(gateway, "unread", postgres)
    worker = psutil.Process(gateway.workers()[0])
    with connect(gateway, host) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        before = worker.memory_info().rss
        statement = "COPY (SELECT repeat('x', 999999) FROM generate_series(1, 250)) TO STDOUT"
        with cursor.copy(statement) as copy:
            assert copy.read()
            until(lambda: _waits_to_write(postgres, connection.info.backend_pid), "it is full")
            assert worker.memory_info().rss - before < GROWTH_MAX_BYTES
            size = sum(map(len, copy))
        assert size >= 248 * 1_000_000
        assert worker.memory_info().rss - before < GROWTH_MAX_BYTES


def _waits_to_write(postgres: Postgres, pid: int) -> bool:
    with postgres.administrator() as administrator:
        found = administrator.execute(
            "SELECT wait_event FROM pg_stat_activity WHERE pid = %s", (pid,)
        )
        return found.fetchall() == [("ClientWrite",)]
