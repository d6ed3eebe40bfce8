"""Who calls the cell is said by the gateway, first, and by nobody else."""

import asyncio

import pytest

from contract_tests.gateway.backends import answer
from contract_tests.gateway.rig import TOKEN, ZONE, GatewayRig, has_ipv6, raw_get, until
from gateway import proxy_header

CELL = f"cell.{ZONE}"
FORGED = proxy_header.build("192.0.2.7", TOKEN.encode())
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Cell:
    """Keeps what each connection began with."""

    def __init__(self, gateway: GatewayRig, **members: object) -> None:
        self.gateway = gateway
        self.begun: list[bytes] = []
        gateway.cell = members
        gateway.write_routes()
        self.backend = gateway.serve(gateway.cell_socket, self._serve)
        until(lambda: gateway.all_know(gateway._version), "the routes are known")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.begun.append(await reader.readuntil(b"host: x\r\n\r\n"))
        writer.write(answer(b"the cell"))
        await writer.drain()
        await reader.read()

    def hear(self, first: bytes = b"", address: str = "127.0.0.1", source: str = "") -> bytes:
        with self.gateway.connect(CELL, address=address, source=source or None) as connection:
            connection.sendall(first)
            assert raw_get(connection, "/")[0] == 200
        return self.begun[-1]


def test_the_cell_is_told_who_calls(gateway: GatewayRig) -> None:
    cell = Cell(gateway, proxy_header=True)
    try:
        for source in ("127.0.0.1", "127.0.0.2"):
            said = cell.hear(source=source)
            header = proxy_header.parse(said)
            assert header is not None
            assert (header.client, header.token) == (source, TOKEN.encode())
            assert said[header.size_bytes :].startswith(b"GET / ")
        if has_ipv6():
            header = proxy_header.parse(cell.hear(address="::1"))
            assert header is not None
            assert header.client == "::1"
    finally:
        cell.backend.stop()


def test_what_a_client_says_of_itself_comes_after(gateway: GatewayRig) -> None:
    cell = Cell(gateway, proxy_header=True)
    try:
        said = cell.hear(FORGED)
        header = proxy_header.parse(said)
        assert header is not None
        assert header.client == "127.0.0.1"
        assert said[header.size_bytes :].startswith(FORGED)
    finally:
        cell.backend.stop()


@pytest.mark.parametrize("members", [{}, {"proxy_header": False}, {"proxy_header": "yes"}])
def test_a_cell_that_does_not_ask_for_it_is_told_nothing(
    gateway: GatewayRig, members: dict[str, object]
) -> None:
    cell = Cell(gateway, **members)
    try:
        assert cell.hear().startswith(b"GET / ")
    finally:
        cell.backend.stop()


def test_an_instance_is_told_nothing(gateway: GatewayRig) -> None:
    host = gateway.add_instance("unannounced", proxy_header=True)
    assert gateway.get(host).text == "unannounced"
