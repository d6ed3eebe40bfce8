"""Answers that last: what they hold, how many there may be, and how they end."""

import asyncio
import contextlib
import http.client
import itertools
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self

import pytest

from contract_tests.specserver.calling import minimal, scope, served
from contract_tests.specserver.echo_server import Patient, serving
from specserver import Forbidden, Reply, streaming
from specserver.shares import DOWNLOADS_OF_ONE, Shares

TEXT = "text/plain"
CHUNK = b"x" * 65_536
# Far beyond what sockets and servers buffer.
MANY = 300
Address = tuple[str, int]


def shares(**options: Any) -> Shares:
    return Shares(lambda exchange: exchange.request.headers.get("x-known"), threads=4, **options)


def ask(address: Address, method: str = "GET", known: str = "one") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(*address, timeout=60)
    connection.request(method, "/thing", headers={"X-Known": known})
    return connection.getresponse()


def until(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.01)


class Silent:
    """A client that asks, and then takes nothing."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(address)
        self.socket.sendall(b"GET /thing HTTP/1.1\r\nhost: x\r\n\r\n")

    def rest(self) -> bytes:
        """What had been sent, until the connection breaks."""
        found = b""
        with contextlib.suppress(ConnectionError):
            while part := self.socket.recv(65_536):
                found += part
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.socket.close()


class Produced:
    """A stream of many chunks, which counts those that were asked for."""

    def __init__(self) -> None:
        self.count = 0
        self.closed = threading.Event()

    def chunks(self) -> Iterator[bytes]:
        try:
            for _ in range(MANY):
                self.count += 1
                yield CHUNK
        finally:
            self.closed.set()


def test_who_takes_nothing_holds_no_thread_and_little_memory() -> None:
    made = Produced()
    asked = itertools.count()

    def answer() -> Reply:
        return Reply.stream(made.chunks(), TEXT) if next(asked) == 0 else Reply.text("served")

    app = served(minimal({}), answer, threads=1, shares=shares())
    with serving("uvloop", Patient, app) as address, Silent(address):
        until(lambda: made.count > 0)
        assert [ask(address).read() for _ in range(20)] == [b"served"] * 20
        assert made.count < MANY / 2
    assert made.closed.wait(60)


def test_who_takes_nothing_for_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "STALLED_S", 0.2)
    made = Produced()
    pool = shares()
    app = served(minimal({}), lambda: Reply.stream(made.chunks(), TEXT), shares=pool)
    with serving("uvloop", Patient, app) as address, Silent(address) as silent:
        assert made.closed.wait(60)
        assert made.count < MANY / 2
        silent.socket.settimeout(60)
        assert not silent.rest().endswith(b"0\r\n\r\n")
        until(lambda: pool._downloads._taken == 0)


@pytest.mark.parametrize("error", [Forbidden("no longer"), RuntimeError("no more flour")])
def test_what_fails_in_the_middle_is_seen_to_be_incomplete(error: Exception) -> None:
    def fails() -> Iterator[bytes]:
        yield b"half"
        raise error

    app = served(minimal({}), lambda: Reply.stream(fails(), TEXT))
    with serving("uvloop", Patient, app) as address:
        got = ask(address)
        assert got.status == 200
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            got.read()


async def ticks() -> AsyncIterator[str]:
    yield "begun\n"
    await asyncio.Event().wait()


def test_a_live_stream_ends_in_order_with_the_server() -> None:
    app = served(minimal({}), lambda: Reply.live(ticks(), TEXT))
    got: list[http.client.HTTPResponse] = []
    with serving("uvloop", Patient, app) as address:
        got.append(ask(address))
        assert got[0].readline() == b"begun\n"
        assert got[0].headers["x-accel-buffering"] == "no"
    assert got[0].read() == b""


def test_a_caller_has_so_many_live_streams_and_gives_back_those_that_end() -> None:
    pool = shares(live_streams=2)
    app = served(minimal({}), lambda: Reply.live(ticks(), TEXT), shares=pool)
    with serving("uvloop", Patient, app) as address:
        opened = [ask(address) for _ in range(2)]
        assert [one.status for one in opened] == [200, 200]
        refused = ask(address)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert b"2 live streams are open" in refused.read()
        opened.append(ask(address, known="other"))
        assert opened[2].status == 200
        # Of a HEAD, nothing lasts.
        assert ask(address, "HEAD").status == 200
        until(lambda: pool._live._taken == 3)
        opened[0].close()
        until(lambda: pool._live._taken == 2)
        assert ask(address).status == 200


def test_a_caller_has_so_many_downloads() -> None:
    pool = shares()
    made = [Produced() for _ in range(DOWNLOADS_OF_ONE + 1)]
    each = iter(made)
    app = served(minimal({}), lambda: Reply.stream(next(each).chunks(), TEXT), shares=pool)
    with serving("uvloop", Patient, app) as address:
        opened = [ask(address) for _ in range(DOWNLOADS_OF_ONE)]
        assert [one.status for one in opened] == [200] * DOWNLOADS_OF_ONE
        assert ask(address).status == 429
        assert len(opened[0].read()) == MANY * len(CHUNK)
        until(lambda: pool._downloads._taken == DOWNLOADS_OF_ONE - 1)
        for one in opened:
            one.close()
    # What was refused has been closed like the others, begun or not.
    assert pool._downloads._taken == 0


def test_a_step_that_nobody_waits_for_any_more_keeps_its_turn_until_its_end() -> None:
    begun, go_on = threading.Event(), threading.Event()
    pool = shares()

    def slow() -> Iterator[bytes]:
        begun.set()
        go_on.wait(60)
        yield b"late"

    app = served(minimal({}), lambda: Reply.stream(slow(), TEXT), shares=pool)

    async def leave() -> None:
        async def receive() -> Any:
            await asyncio.to_thread(begun.wait, 60)
            return {"type": "http.disconnect"}

        async def send(_event: Any) -> None: ...

        task = asyncio.ensure_future(app(scope("GET", "/thing", {}), receive, send))
        await asyncio.to_thread(begun.wait, 60)
        await asyncio.sleep(0.05)
        assert pool._threads._all._taken >= 1
        go_on.set()
        await asyncio.wait_for(task, 60)
        assert pool._threads._all._taken == 0

    asyncio.run(leave())
