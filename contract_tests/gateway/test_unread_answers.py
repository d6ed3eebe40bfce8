"""Clients that leave an answer unread: whoever broke TLS, and whoever's backend has ended."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator

import psutil

from contract_tests.gateway.backends import answer, pattern, read_head
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import WAIT_S, GatewayRig, raw_get, until
from gateway.draining import Draining

LARGE_BYTES = 8_000_000
BROKEN_RECORD = b"\x17\x03\x03\x00\x20" + bytes(32)
# By then the gateway has sent what the client's system takes.
FILLED_S = 0.3


@contextlib.contextmanager
def not_reading(gateway: GatewayRig, host: str) -> Iterator[ssl.SSLSocket]:
    """A client that asks for much, and reads its first bytes only."""
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.settimeout(20)
        plain.connect(("127.0.0.1", gateway.port))
        with gateway.context().wrap_socket(plain, server_hostname=host) as session:
            path = f"/bytes/{LARGE_BYTES}"
            session.sendall(f"GET {path} HTTP/1.1\r\nauthorization: x\r\nhost: x\r\n\r\n".encode())
            assert session.recv(8) == b"HTTP/1.1"
            yield session


def test_whoever_broke_tls_is_hung_up_on(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(linger_s=0.2)
    host = gateway.add_instance("broken")
    with contextlib.ExitStack() as held:
        crowd = [held.enter_context(not_reading(gateway, host)) for _ in range(5)]
        time.sleep(FILLED_S)
        for session in crowd:
            held.enter_context(socket.socket(fileno=session.detach())).sendall(BROKEN_RECORD)
        until(lambda: not clients(gateway), "all are hung up on")


def clients(gateway: GatewayRig) -> list[int]:
    """The ports of those that the worker has a connection of."""
    found = psutil.Process(gateway.workers()[0]).net_connections("tcp")
    return [each.raddr.port for each in found if each.raddr and each.laddr.port == gateway.port]


def test_a_session_that_its_backend_ended_gives_its_place_back(make_gateway: MakeGateway) -> None:
    gateway, ended = make_gateway(), threading.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, path, _ = await read_head(reader)
        if path == "/name":
            writer.write(answer(b"served"))
            return
        writer.write(answer(pattern(LARGE_BYTES)))
        await asyncio.to_thread(ended.wait, WAIT_S)
        writer.transport.abort()

    host = gateway.add_instance("ghosts", serve, connections_max=2)
    with not_reading(gateway, host), not_reading(gateway, host):
        time.sleep(FILLED_S)
        assert status(gateway, host) == 503
        ended.set()
        until(lambda: status(gateway, host) == 200, "places are given back")


def status(gateway: GatewayRig, host: str) -> int:
    with gateway.connect(host) as connection:
        return raw_get(connection)[0]


class Client:
    def __init__(self, draining: Draining) -> None:
        self._draining = draining
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True
        self._draining.leave(self)


def test_of_an_instance_so_many_are_waited_for() -> None:
    draining = Draining(of_one_max=2)
    first, *others, elsewhere = (Client(draining) for _ in range(4))
    draining.join("another", elsewhere)
    for each in (first, *others):
        draining.join("one", each)
        draining.leave(elsewhere)
        draining.leave(elsewhere)
    assert [each.is_cut for each in (first, *others)] == [True, False, False]
    draining.leave(others[0])
    draining.join("one", first)
    assert [each.is_cut for each in others] == [False, False]
