"""Owns streamed replies: chunk by chunk, and ended when the client goes away or takes nothing."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, Protocol

from specserver.replies import Chunk, Chunks

STALLED_S: Final = 60.0
"""A client that has not taken a chunk in this time holds its place for nothing."""
PEER: Final = "specserver.peer"
"""In the scope of a request: the connection it came by, where `http_protocol` serves."""
_END: Final = object()

Run = Callable[[Callable[[], Any]], Awaitable[Any]]


class Peer(Protocol):
    """A connection, as far as a stream needs it."""

    ending: asyncio.Event
    """Set when the server shuts down: what has no end of its own ends now."""

    def cut(self) -> None:
        """Breaks the connection, so that nobody takes what was sent for the whole."""


class Stalled(Exception):  # noqa: N818 -- a fact about a client
    """The client took nothing for too long."""


class Held(AsyncIterator[Chunk]):
    """Chunks that hold something, as a place among few, until they are closed."""

    def __init__(self, chunks: AsyncIterator[Chunk], release: Callable[[], None]) -> None:
        self._chunks = chunks
        self._release: Callable[[], None] | None = release

    async def __anext__(self) -> Chunk:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        release, self._release = self._release, None
        try:
            await close(self._chunks)
        finally:
            if release is not None:
                release()


async def send_stream(
    chunks: AsyncIterator[Chunk],
    receive: Callable[[], Awaitable[Any]],
    send: Callable[[Any], Awaitable[None]],
    ending: asyncio.Event | None = None,
) -> None:
    """Sends what there is until its end, that of the client, or `ending`.

    Raises what the chunks raise, and Stalled.
    """
    sending = asyncio.ensure_future(_send_all(chunks, send))
    waiting = [sending, asyncio.ensure_future(until_gone(receive))]
    ended = asyncio.ensure_future(ending.wait()) if ending is not None else None
    try:
        await asyncio.wait(
            [*waiting, *([ended] if ended else [])], return_when=asyncio.FIRST_COMPLETED
        )
        if sending.done():
            sending.result()
    finally:
        for task in (*waiting, *([ended] if ended else [])):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
    if sending.cancelled() and ended is not None and ended.done() and not ended.cancelled():
        await send(_LAST)


async def close(chunks: Any) -> None:
    """Lets a generator clean up after itself, whether or not it was exhausted."""
    end = getattr(chunks, "aclose", None)
    if end is not None:
        await end()


def on_loop(chunks: Chunks, run: Run) -> AsyncIterator[Chunk]:
    return chunks if isinstance(chunks, AsyncIterator) else _OnThreads(chunks, run)


_LAST: Final = {"type": "http.response.body", "body": b""}


async def _send_all(chunks: AsyncIterator[Chunk], send: Callable[[Any], Awaitable[None]]) -> None:
    async for chunk in chunks:
        data = chunk.encode() if isinstance(chunk, str) else chunk
        if data:
            # The server waits here while its buffer is full, and so do the chunks.
            event = {"type": "http.response.body", "body": data, "more_body": True}
            await _in_time(send(event))
    await _in_time(send(_LAST))


async def _in_time(sent: Awaitable[None]) -> None:
    try:
        # Not `wait_for`, which may lose a cancellation where what it waits for is done just then.
        async with asyncio.timeout(STALLED_S):
            await sent
    except TimeoutError:
        raise Stalled(f"the client did not read the response for {STALLED_S:.0f} s") from None


class _OnThreads(AsyncIterator[Chunk]):
    """A synchronous iterator, each step of which runs on a thread."""

    def __init__(self, chunks: Iterator[Chunk], run: Run) -> None:
        self._chunks = chunks
        self._run = run
        # A generator cannot be closed while a thread is in it.
        self._lock = threading.Lock()

    async def __anext__(self) -> Chunk:
        chunk = await self._run(self._next)
        if chunk is _END:
            raise StopAsyncIteration
        found: Chunk = chunk
        return found

    def _next(self) -> Any:
        with self._lock:
            return next(self._chunks, _END)

    async def aclose(self) -> None:
        if getattr(self._chunks, "close", None) is not None:
            await self._run(self._close)

    def _close(self) -> None:
        with self._lock:
            self._chunks.close()  # type: ignore[attr-defined]  # of generators, and asked for above


async def until_gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
