"""Connections to receivers: what is read is bounded, and what nobody reads is waited for."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import httpcore
import pytest
import uvloop

from control.delivery.network_streams import (
    RECEIVED_BYTES_MAX,
    NetworkBackend,
    NetworkStream,
)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Run = Callable[[Coroutine[Any, Any, None]], None]
LARGE = b"x" * (32 << 20)
DEADLINE_S = 60


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """On each of the loops that deliverers and others have."""

    def bounded(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(work, DEADLINE_S))

    return bounded


async def connected(serve: Serve) -> tuple[asyncio.Server, NetworkStream]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    return server, await NetworkStream.connected("127.0.0.1", port, None)


async def settled(size: Callable[[], int]) -> int:
    """How much it is once it has not changed for half a second."""
    while True:
        before = size()
        await asyncio.sleep(0.5)
        if size() == before:
            return before


def test_what_comes_is_read_to_its_end(run: Run) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read(9)) + LARGE)
        await writer.drain()
        writer.close()

    async def work() -> None:
        server, stream = await connected(serve)
        await stream.write(b"")
        await stream.write(b"some text")
        found = bytearray()
        while part := await stream.read(65_536):
            assert len(part) <= 65_536
            found += part
        assert bytes(found) == b"some text" + LARGE
        assert stream.get_extra_info("is_readable")
        await stream.aclose()
        server.close()

    run(work())


def test_what_nobody_reads_is_not_taken(run: Run) -> None:
    """A receiver that answers without end fills no memory here."""
    sent = 0

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(bytes(1 << 20))
            await writer.drain()
            sent += 1 << 20

    async def work() -> None:
        server, stream = await connected(serve)
        await settled(lambda: sent)
        held = len(stream._received)
        assert RECEIVED_BYTES_MAX < held < 2 * RECEIVED_BYTES_MAX + (1 << 18)
        before, taken = sent, 0
        while sent == before:
            taken += len(await stream.read(1 << 20))
        assert taken > held
        await stream.aclose()
        server.close()

    run(work())


def test_a_receiver_that_does_not_read_is_waited_for(run: Run) -> None:
    go_on = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.transport.abort()

    async def work() -> None:
        server, stream = await connected(serve)
        writing = asyncio.ensure_future(stream.write(LARGE))
        done, _ = await asyncio.wait([writing], timeout=1)
        assert not done
        go_on.set()
        with pytest.raises(httpcore.WriteError):
            await writing
        with pytest.raises(httpcore.WriteError):
            await stream.write(b"more")
        server.close()

    run(work())


def test_a_read_that_is_given_up_leaves_what_comes_later(run: Run) -> None:
    go_on = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(b"late")
        await writer.drain()

    async def work() -> None:
        server, stream = await connected(serve)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await stream.read(10)
        assert not stream.get_extra_info("is_readable")
        go_on.set()
        assert await stream.read(10) == b"late"
        await stream.aclose()
        server.close()

    run(work())


def test_a_connection_on_which_something_came_unasked_is_not_used_again(run: Run) -> None:
    """It would be taken for the answer to the next request."""
    connections, go_on = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        if connections == 1:
            await go_on.wait()
            writer.write(b"HTTP/1.1 500 Unasked\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()

    async def work() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with httpcore.AsyncConnectionPool(network_backend=NetworkBackend()) as pool:
            assert (await pool.request("GET", url)).status == 200
            kept: Any = pool.connections[0]
            assert not kept.has_expired()
            go_on.set()
            while not kept.has_expired():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
            assert (await pool.request("GET", url)).status == 200
        assert connections == 2
        server.close()

    run(work())


def test_who_is_not_there_is_told(run: Run) -> None:
    async def work() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(httpcore.ConnectError) as told:
            await NetworkStream.connected("127.0.0.1", port, None)
        assert isinstance(told.value.__cause__, ConnectionRefusedError)

    run(work())
