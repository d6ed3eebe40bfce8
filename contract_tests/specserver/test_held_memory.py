"""Holds how much memory a connection takes before anybody knows whose it is."""

import asyncio
import contextlib
import socket
import time
import tracemalloc
from asyncio import Transport
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from contract_tests.specserver.calling import minimal, scope, served
from contract_tests.specserver.echo_server import Patient, serving
from contract_tests.specserver.wire import answers, connect, exchanged
from specserver import Exchange, Forbidden
from specserver.bodies import read_body
from specserver.http_protocol import PIPELINED_MAX
from specserver.request_sizes import FIELDS_MAX
from specserver.requests import Headers

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n"


class Seen(Patient):
    """Keeps what a test looks into."""

    latest: ClassVar[list["Seen"]] = []

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # uvicorn's
        super().connection_made(transport)
        self.latest[:] = [self]


def answered(client: socket.socket) -> int:
    """The status of the next response, all of which has arrived."""
    received = b""
    while True:
        chunk = client.recv(65_536)
        assert chunk, received
        received += chunk
        with contextlib.suppress(AssertionError):
            (answer,) = answers(received)
            return answer.status


def fields(count: int) -> bytes:
    return b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * (count - 1) + b"\r\n"


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_header_fields_are_counted_and_not_only_measured(loop: str) -> None:
    with serving(loop, Patient) as address:
        (first, _) = exchanged(address, fields(FIELDS_MAX) + LAST)
        assert first.status == 200
        (refused,) = exchanged(address, fields(FIELDS_MAX + 1))
    assert (refused.status, refused.document["code"]) == (431, "header_fields_too_large")


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_requests_sent_ahead_are_few(loop: str) -> None:
    with serving(loop, Patient) as address:
        found = exchanged(address, SLOW + GET * (PIPELINED_MAX - 1) + LAST)
        assert [one.status for one in found] == [200] * (PIPELINED_MAX + 1)
        *before, refused = exchanged(address, SLOW + GET * 10_000)
    assert [one.status for one in before] == [200] * (PIPELINED_MAX + 1)
    assert (refused.status, refused.document["code"]) == (429, "too_many_at_once")
    assert refused.fields["retry-after"] == "1"


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_body_that_nobody_read_is_forgotten(loop: str) -> None:
    with serving(loop, Seen) as address, connect(address) as client:
        head = b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 90000\r\n\r\n"
        client.sendall(head + b"x" * 50_000)
        assert answered(client) == 413
        client.sendall(b"x" * 40_000 + GET)
        assert answered(client) == 200
        client.sendall(head + b"x" * 50_000)
        assert answered(client) == 413
        # The answer is read before the server has done all that follows it.
        until = time.monotonic() + 20
        while Seen.latest[0].cycle.body != b"" and time.monotonic() < until:
            time.sleep(0.01)
        assert Seen.latest[0].cycle.body == b""


def test_a_body_in_small_pieces_takes_no_more_than_one_in_large() -> None:
    pieces = [b"%02d" % (number % 100) for number in range(20_000)]
    arriving = iter(pieces)

    async def receive() -> dict[str, Any]:
        # A copy: each piece that arrives is an object of its own.
        piece = next(arriving, None)
        body = b"" if piece is None else bytes(bytearray(piece))
        return {"type": "http.request", "body": body, "more_body": piece is not None}

    tracemalloc.start()
    try:
        body = asyncio.run(read_body(Headers([]), 2**20, receive))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert body == b"".join(pieces)
    assert peak < 4 * len(body) + 100_000


def refuse(_exchange: Exchange) -> None:
    raise Forbidden


class Strict:
    """A boundary that refuses by the head."""

    admit = staticmethod(refuse)

    async def __call__(self, exchange: Exchange) -> Any:
        return await exchange.invoke_async()


async def taken(body: Any) -> Any:
    return {"length": len(body)}


def status_of(app: Any) -> int:
    """Of a request of which nobody may ask for the body."""
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        raise AssertionError

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    asyncio.run(app(scope("POST", "/thing", {"content-type": "text/plain"}), receive, send))
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"boundary": Strict()}, 403),
        ({"security": {"key": lambda _token: None}}, 401),
    ],
)
def test_whoever_is_refused_by_the_head_sends_no_body(
    options: dict[str, Callable[..., Any]], status: int
) -> None:
    document = minimal(
        {"requestBody": {"content": {"text/plain": {}}}, "security": [{"key": []}]},
        method="post",
        components={"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    )
    assert status_of(served(document, taken, **options)) == status
