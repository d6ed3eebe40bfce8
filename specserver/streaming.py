"""Owns streamed replies: chunk by chunk, and ended when the client goes away."""

import asyncio
import contextlib
import threading
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
    source = chunks if isinstance(chunks, AsyncIterator) else _OnThreads(chunks, threads)
    if head:
        await _close(source)
        await send({"type": "http.response.body", "body": b""})
        return
    sending = asyncio.ensure_future(_send_all(source, send))
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
        await _close(source)


async def _send_all(chunks: AsyncIterator[Chunk], send: Callable[[Any], Awaitable[None]]) -> None:
    async for chunk in chunks:
        data = chunk.encode() if isinstance(chunk, str) else chunk
        if data:
            await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class _OnThreads(AsyncIterator[Chunk]):
    """A synchronous iterator, each step of which runs on the thread pool."""

    def __init__(self, chunks: Iterator[Chunk], threads: Threads) -> None:
        self._chunks = chunks
        self._threads = threads
        # A generator cannot be closed while a thread is in it.
        self._lock = threading.Lock()

    async def __anext__(self) -> Chunk:
        chunk = await self._threads.run(self._next)
        if chunk is _END:
            raise StopAsyncIteration
        found: Chunk = chunk
        return found

    def _next(self) -> Any:
        with self._lock:
            return next(self._chunks, _END)

    async def aclose(self) -> None:
        await self._threads.run(self._close)

    def _close(self) -> None:
        close = getattr(self._chunks, "close", None)
        with self._lock:
            if close is not None:
                close()


async def _until_gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _close(chunks: AsyncIterator[Chunk]) -> None:
    """Lets a generator clean up after itself, whether or not it was exhausted."""
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()
