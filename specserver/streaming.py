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


class ConnectionEnd:
    """That a connection is to end: one waits for it. Each connection has one, so it is small."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def waited_for(self) -> "asyncio.Future[None]":
        """Done once it is set."""
        self._waiting = asyncio.get_running_loop().create_future()
        if self._is_set:
            self._waiting.set_result(None)
        return self._waiting


class Peer(Protocol):
    """A connection, as far as a stream needs it."""

    ending: ConnectionEnd
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

    def __anext__(self) -> Awaitable[Chunk]:
        # No coroutine of its own, which would be one more for each chunk of each stream.
        return self._chunks.__anext__()

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
    ending: ConnectionEnd | None = None,
) -> None:
    """Sends what there is until its end, that of the client, or `ending`.

    Raises what the chunks raise, and Stalled.
    """
    sending = asyncio.ensure_future(_send_all(chunks, send))
    waiting = [sending, asyncio.ensure_future(until_gone(receive))]
    ended = ending.waited_for() if ending is not None else None
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
    watch = _StallWatch()
    try:
        async for chunk in chunks:
            data = chunk.encode() if isinstance(chunk, str) else chunk
            if data:
                # The server waits here while its buffer is full, and so do the chunks.
                watch.begin()
                await send({"type": "http.response.body", "body": data, "more_body": True})
                watch.end()
        watch.begin()
        await send(_LAST)
    except asyncio.CancelledError:
        if watch.is_stalled:
            raise Stalled(f"the client did not read the response for {STALLED_S:.0f} s") from None
        raise
    finally:
        watch.close()


class _StallWatch:
    """Cancels the task that made it when a client takes nothing for too long.

    One timer for a minute of chunks: thousands of streams send one every few seconds, and a timer
    for each chunk would be most of what they cost.
    """

    __slots__ = ("_loop", "_since", "_task", "_timer", "is_stalled")

    def __init__(self) -> None:
        self.is_stalled = False
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """A chunk is being sent."""
        self._since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_at(self._since + STALLED_S, self._look)

    def end(self) -> None:
        self._since = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._since is None:
            return
        if self._since + STALLED_S > self._loop.time():
            self._timer = self._loop.call_at(self._since + STALLED_S, self._look)
        elif self._task is not None:
            self.is_stalled = True
            self._task.cancel()


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
