"""Answers over HTTP are bounded, for the gateway's own client and for what asks engines."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from cell.engines.http import ask
from gateway.bounded_answers import BYTES_MAX
from gateway.wake import cell_client

Asking = Callable[[str], Awaitable[httpx.Response]]


async def as_gateway(socket: str) -> httpx.Response:
    async with cell_client(socket, 20.0) as client:
        return await client.post("/v1/wake/inst_1")


async def as_cell(socket: str) -> httpx.Response:
    return await ask(socket, "GET", "/ready", timeout_s=20.0)


def answer(folder: Path, asking: Asking, body: bytes, *headers: str) -> httpx.Response:
    """What it makes of a server that answers this."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers]
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
        writer.close()

    async def both() -> httpx.Response:
        socket = str(folder / "s")
        async with await asyncio.start_unix_server(serve, socket):
            return await asking(socket)

    return asyncio.run(both())


@pytest.mark.parametrize("asking", [as_gateway, as_cell])
def test_an_answer_beyond_the_bound_is_refused(tmp_path: Path, asking: Asking) -> None:
    assert len(answer(tmp_path, asking, b" " * BYTES_MAX).content) == BYTES_MAX
    (tmp_path / "s").unlink(missing_ok=True)
    with pytest.raises(httpx.TransportError, match="larger than 16 MiB"):
        answer(tmp_path, asking, b" " * (BYTES_MAX + 1))


def test_the_gateway_takes_nothing_compressed(tmp_path: Path) -> None:
    with pytest.raises(httpx.TransportError, match="compressed"):
        answer(tmp_path, as_gateway, gzip.compress(b"{}"), "Content-Encoding: gzip")


def test_what_an_engine_compresses_stays_so(tmp_path: Path) -> None:
    """It is taken as it came, so that its size is what was read."""
    packed = gzip.compress(b" " * 1_000_000)
    assert answer(tmp_path, as_cell, packed, "Content-Encoding: gzip").content == packed
