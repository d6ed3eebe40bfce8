"""Connections are accepted however busy those are that were accepted before."""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Callable, Iterator

import pytest
import uvicorn
import uvloop

from contract_tests.specserver.echo_server import Patient, serving
from contract_tests.specserver.wire import exchanged
from menagerie.control_plane import HTTP
from specserver.accepting import ACCEPTS_PER_TURN, AcceptingLoop

CLIENTS = 2 * ACCEPTS_PER_TURN
GET = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
LOOP = "specserver.accepting:AcceptingLoop"


class Counted(asyncio.Protocol):
    made = 0

    def connection_made(self, _transport: asyncio.BaseTransport) -> None:
        Counted.made += 1


@contextlib.contextmanager
def clients(address: tuple[str, int]) -> Iterator[None]:
    with contextlib.ExitStack() as held:
        for _ in range(CLIENTS):
            held.enter_context(socket.create_connection(address))
        yield


def turns_until_accepted(factory: Callable[[], asyncio.AbstractEventLoop]) -> int:
    """Of a loop that always has something to do, with all of them there from the beginning."""
    Counted.made = 0

    async def count(listener: socket.socket) -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Counted, sock=listener, backlog=CLIENTS)
        turns = 0
        while Counted.made < CLIENTS:
            turns += 1
            await asyncio.sleep(0)
        server.close()
        return turns

    listener = socket.create_server(("127.0.0.1", 0), backlog=CLIENTS)
    with clients(listener.getsockname()[:2]), asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(count(listener))


def test_all_who_have_come_are_accepted_within_a_few_turns() -> None:
    assert turns_until_accepted(AcceptingLoop) < CLIENTS / 10


def test_uvloop_by_itself_takes_a_turn_for_each() -> None:
    """Where it no longer does, its own server can be taken again."""
    assert turns_until_accepted(uvloop.new_event_loop) >= CLIENTS


def test_the_api_runs_on_it() -> None:
    assert uvicorn.Config("unused", **HTTP).get_loop_factory() is AcceptingLoop


def test_it_serves_and_ends() -> None:
    with serving(LOOP, Patient) as address:
        (answer,) = exchanged(address, GET)
        assert answer.status == 200
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_it_binds_each_address_of_a_host(host: str) -> None:
    async def bound() -> list[str]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Counted, host, 0)
        assert server.is_serving()
        found = [each.getsockname()[0] for each in server.sockets]
        server.close()
        assert not server.is_serving()
        return found

    with asyncio.Runner(loop_factory=AcceptingLoop) as runner:
        try:
            found = runner.run(bound())
        except OSError:
            pytest.skip("no IPv6 loopback")
    assert found in (["127.0.0.1"], ["::1"], ["127.0.0.1", "::1"], ["::1", "127.0.0.1"])
    if host != "localhost":
        assert found == [host]


def test_a_port_that_is_taken_is_an_error() -> None:
    async def twice(port: int) -> None:
        await asyncio.get_running_loop().create_server(Counted, "127.0.0.1", port)

    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        asyncio.Runner(loop_factory=AcceptingLoop) as runner,
        pytest.raises(OSError, match="in use"),
    ):
        runner.run(twice(taken.getsockname()[1]))


def test_without_descriptors_it_goes_on_once_there_are_some() -> None:
    """Those who came meanwhile wait in the queue."""
    with serving(LOOP, Patient) as address:
        held: list[int] = []
        client = socket.socket()
        limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 20, hard))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(client.fileno()))
        try:
            client.connect(address)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            for each in held:
                os.close(each)
        client.sendall(GET)
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        client.close()
