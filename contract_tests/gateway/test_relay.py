"""What goes in comes out: every byte, both ways, with bounded memory and honest endings."""

import asyncio
import contextlib
import hashlib
import socket
import ssl
import threading
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract_tests.gateway.backends import pattern
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import Client, GatewayRig, read_answer, until

MEGABYTE = 1_000_000
GROWTH_MAX_BYTES = 64 * 2**20

sizes = st.one_of(
    st.integers(0, 100),
    st.sampled_from([16_383, 16_384, 16_385, 65_535, 65_536, 262_143, 262_144, 262_145]),
    st.integers(0, 3 * MEGABYTE),
)


@pytest.fixture(scope="module")
def relayed(gateway: GatewayRig) -> Iterator[tuple[Client, str]]:
    host = gateway.add_instance("relayed")
    with gateway.client() as client:
        yield client, host


@settings(max_examples=30)
@given(size=sizes)
def test_bodies_go_both_ways_unchanged(relayed: tuple[Client, str], size: int) -> None:
    client, host = relayed
    sent = pattern(size)
    assert client.send("POST", host, "/echo", content=sent).content == sent


@settings(max_examples=20)
@given(pieces=st.lists(st.integers(1, 40_000), min_size=1, max_size=20))
def test_records_of_any_size_are_joined_in_order(gateway: GatewayRig, pieces: list[int]) -> None:
    host = "duckdb-relayed.test.localhost"
    if host not in gateway.routes:
        gateway.add_instance("relayed")
    content = pattern(sum(pieces))
    with gateway.connect(host) as connection:
        head = f"POST /digest HTTP/1.1\r\ncontent-length: {len(content)}\r\n\r\n".encode()
        for byte in head[:8]:
            connection.sendall(bytes((byte,)))
        connection.sendall(head[8:])
        position = 0
        for size in pieces:
            connection.sendall(content[position : position + size])
            position += size
        assert read_answer(connection)[2].decode() == hashlib.sha256(content).hexdigest()


@pytest.mark.nightly
def test_large_bodies_are_exact(gateway: GatewayRig) -> None:
    host = gateway.add_instance("large")
    size = 40 * MEGABYTE
    expected = hashlib.sha256(pattern(size)).hexdigest()
    with gateway.client() as client:
        assert client.send("POST", host, "/digest", content=pattern(size)).text == expected
        got = client.send("GET", host, f"/bytes/{size}").content
    assert hashlib.sha256(got).hexdigest() == expected


def test_an_early_answer_reaches_a_client_that_still_sends(gateway: GatewayRig) -> None:
    host = gateway.add_instance("early-answer")
    for _ in range(20):
        with gateway.connect(host) as connection:
            connection.sendall(b"POST /early HTTP/1.1\r\ncontent-length: 50000000\r\n\r\n")
            with contextlib.suppress(OSError):
                connection.sendall(b"x" * 5 * MEGABYTE)
            assert read_answer(connection)[:1] == (413,)


def test_half_closing_lets_the_answer_come(gateway: GatewayRig) -> None:
    """The backend answers only when it has seen the end, so an end that is not passed on hangs."""
    host = gateway.add_instance("half", _count_until_end)
    with gateway.dial() as plain:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = gateway.context().wrap_bio(incoming, outgoing, server_hostname=host)
        while not _shaken(client):
            plain.sendall(outgoing.read())
            incoming.write(plain.recv(65_536))
        client.write(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 1000)
        with contextlib.suppress(ssl.SSLWantReadError):
            client.unwrap()  # says close_notify and goes on reading
        plain.sendall(outgoing.read())
        plain.shutdown(socket.SHUT_WR)
        received = b""
        while data := plain.recv(65_536):
            received += data
        incoming.write(received)
        assert client.read(1000) == b"1018"


def _shaken(client: ssl.SSLObject) -> bool:
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


async def _count_until_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    data = await reader.read()
    writer.write(str(len(data)).encode())
    await writer.drain()


async def _say_and_break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    await writer.drain()


def test_the_end_of_an_answer_is_authenticated(gateway: GatewayRig) -> None:
    """Without close_notify a client could not tell the end from a cut."""
    host = gateway.add_instance("ends", _say_and_break_off)
    plain = gateway.dial()
    with gateway.context().wrap_socket(
        plain, server_hostname=host, suppress_ragged_eofs=False
    ) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        received = b""
        while data := connection.recv(1000):
            received += data
    assert received.endswith(b"all of it")


def test_a_client_that_leaves_is_seen_by_the_backend(gateway: GatewayRig) -> None:
    left = threading.Event()

    async def wait_for_the_end(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        left.set()

    host = gateway.add_instance("leaves", wait_for_the_end)
    connection = gateway.connect(host)
    connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
    connection.close()
    assert left.wait(60)


class _Flood:
    """Sends without end; knows how much was taken from it."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.sent_bytes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        block = b"y" * 2**20
        while self.sent_bytes < self.total_bytes:
            writer.write(block)
            await writer.drain()
            self.sent_bytes += len(block)


# By day of a result that nobody reads: test_patience.py.
@pytest.mark.nightly
def test_a_reader_that_stops_reading_costs_little_memory(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    flood = _Flood(1_000 * MEGABYTE)
    host = gateway.add_instance("flood", flood.serve)
    worker = psutil.Process(gateway.workers()[0])
    before = worker.memory_info().rss
    with gateway.connect(host) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        settled = _settled(flood)
        assert 0 < settled < flood.total_bytes
        assert worker.memory_info().rss - before < GROWTH_MAX_BYTES
        received = 0
        while received < flood.total_bytes:
            received += len(connection.recv(2**20))
        assert worker.memory_info().rss - before < GROWTH_MAX_BYTES


def _settled(flood: _Flood) -> int:
    """How much was sent when nothing more went for a while."""
    seen = [-1, -2, -3, -4, -5, -6, -7, -8, -9, -10]

    def same() -> bool:
        seen.append(flood.sent_bytes)
        return flood.sent_bytes > 0 and len(set(seen[-10:])) == 1

    until(same, "the flood is held back")
    return flood.sent_bytes


async def _never_reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


def test_a_backend_that_stops_reading_costs_little_memory(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    host = gateway.add_instance("stuck", _never_reads)
    worker = psutil.Process(gateway.workers()[0])
    before = worker.memory_info().rss
    with gateway.connect(host) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\ncontent-length: 200000000\r\n\r\n")
        connection.settimeout(1)
        with pytest.raises(TimeoutError):
            connection.sendall(b"z" * 200 * MEGABYTE)
        assert worker.memory_info().rss - before < GROWTH_MAX_BYTES


@pytest.mark.nightly
def test_many_connections_leave_nothing_behind(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    host = gateway.add_instance("many")
    worker = psutil.Process(gateway.workers()[0])
    context = gateway.context()

    def hundred() -> None:
        for _ in range(100):
            with gateway.connect(host, context) as connection:
                connection.sendall(b"GET /name HTTP/1.1\r\nhost: x\r\n\r\n")
                assert read_answer(connection)[0] == 200

    hundred()
    descriptors, memory = worker.num_fds(), worker.memory_info().rss
    for _ in range(4):
        hundred()
    until(lambda: worker.num_fds() <= descriptors, "every descriptor is given back")
    assert worker.memory_info().rss - memory < 8 * 2**20
