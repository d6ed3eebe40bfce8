"""What an engine may answer the cell: it is the tenant's, and may be anything by now."""

import asyncio
import socket
import tempfile
from pathlib import Path

import pytest

from cell.engines.driver import Login
from cell.engines.resp import connection as resp

ANSWERS = {
    "nested without end": b"*1\r\n" * 100_000,
    "a text of terabytes": b"$4000000000000\r\n" + b"x" * 2**20,
    "texts without end": b"*4000000000000\r\n" + b"$1\r\nx\r\n" * 10_000,
    "a line without end": b"+" + b"x" * 2**20,
    "a length that is none": b"$many\r\n",
    "a length of thousands of digits": b"*" + b"9" * 10_000 + b"\r\n",
}


async def answered(said: bytes, *, nested: bool) -> None:
    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"word\r\n")
        writer.write(b"+OK\r\n")
        await reader.readuntil(b"PING\r\n")
        writer.write(said)
        # It stays, as one would that wants to be waited for.
        await reader.read()
        writer.close()

    with tempfile.TemporaryDirectory() as folder:
        socket = str(Path(folder, "engine.sock"))
        async with (
            await asyncio.start_unix_server(engine, socket),
            resp.connected(socket, Login("app", "word"), timeout_s=20) as connection,
        ):
            await (connection.ask_nested if nested else connection.ask)("PING")


@pytest.mark.parametrize("nested", [True, False], ids=["nested", "plain"])
def test_others_have_their_turn_while_a_long_answer_is_read(nested: bool) -> None:
    """All that is read here is there already, so that nothing waits for the network."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def asked() -> None:
        _, writer = await asyncio.open_unix_connection(sock=ours)
        reader = asyncio.StreamReader()
        reader.feed_data(b"*50000\r\n" + b"+x\r\n" * 50_000)
        other = asyncio.create_task(others())
        connection = resp.RespConnection(reader, writer)
        await (connection.ask_nested if nested else connection.ask_list)("PING")
        other.cancel()
        writer.close()

    ours, theirs = socket.socketpair()
    with ours, theirs:
        asyncio.run(asked())
    assert turns >= 40


@pytest.mark.parametrize("nested", [True, False], ids=["nested", "plain"])
@pytest.mark.parametrize("name", ANSWERS)
def test_what_cannot_be_read_ends_the_connection_at_once(name: str, nested: bool) -> None:
    """As an error of a connection, which every caller expects; not after the timeout."""
    with pytest.raises(ConnectionAbortedError):
        asyncio.run(answered(ANSWERS[name], nested=nested))
