"""Owns streamed replies: chunk by chunk, and ended when the client goes away."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from specserver.replies import Chunk, Chunks
from specserver.threads import Threads

_END = object()


async def send_stream(
    chunks: Chunks,
    head: bool,
    threads: Threads,
    receive: Callable[[], Awaitable[Any]],
    send: Callable[[Any], Awaitable[None]],
) -> None:
    if head:
        await _close(chunks)
        await send({"type": "http.response.body", "body": b""})
        return
    sending = asyncio.ensure_future(_send_all(chunks, threads, send))
    gone = asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    finally:
        for task in (sending, gone):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        await _close(chunks)


async def _send_all(
    chunks: Chunks, threads: Threads, send: Callable[[Any], Awaitable[None]]
) -> None:
    async for chunk in _asynchronous(chunks, threads):
        data = chunk.encode() if isinstance(chunk, str) else chunk
        if data:
            await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _asynchronous(chunks: Chunks, threads: Threads) -> AsyncIterator[Chunk]:
    if isinstance(chunks, AsyncIterator):
        async for chunk in chunks:
            yield chunk
        return
    while (chunk := await threads.run(next, chunks, _END)) is not _END:
        yield chunk


async def _until_gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _close(chunks: Chunks | Iterator[Chunk]) -> None:
    """Lets a generator clean up after itself, whether or not it was exhausted."""
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()
        return
    close = getattr(chunks, "close", None)
    if close is not None:
        # A generator that a thread is still in cannot be closed, and ends with that thread.
        with contextlib.suppress(ValueError):
            close()
