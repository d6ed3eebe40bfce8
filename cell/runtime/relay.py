"""A relay between a client library and a server that runs tenants' code: limits bytes and time.

libpq reads a whole row or error into memory, even a gigabyte of it, and the server's own limits are
settings, which code in the database can lift.
"""

import asyncio
import contextlib
import math
import signal
import struct
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from cell.runtime.engine_files import Place
from gateway import sockets

# Of each verifier that the cell makes.
ITERATIONS = 4096
CHUNK_BYTES = 64 * 1024
HEARD_MAX_BYTES = 64 * 1024
# Of a message: its kind, its length, and of an authentication what it asks for.
HEADER = struct.Struct("!cII")
HEAD = struct.Struct("!cI")
LENGTH_BYTES = 4
SASL, SASL_CONTINUE = 10, 11
BEFORE_SALT = (b"R", b"N", b"v")


class Salting:
    """What a server asks of who logs in: no more iterations than of a verifier of ours.

    Each role can give itself a verifier of any, and libpq works them all out, without an end, on
    the thread that everything else of the cell runs on, or outside the limits of the instance.
    """

    def __init__(self) -> None:
        self._heard: bytes | None = b""

    def is_ours(self, content: bytes) -> bool:
        """To be asked before what a server says is passed on."""
        if self._heard is None:
            return True
        heard = self._heard + content
        while len(heard) >= HEADER.size:
            kind, size, code = HEADER.unpack_from(heard)
            if kind == b"R" and code == SASL_CONTINUE:
                if len(heard) <= size:
                    break
                self._heard = None
                iterations = heard[: size + 1].rpartition(b",i=")[2]
                return iterations == str(ITERATIONS).encode()
            if kind not in BEFORE_SALT or (kind == b"R" and code != SASL):
                self._heard = None
                return True
            if len(heard) <= size:
                break
            heard = heard[size + 1 :]
        self._heard = heard
        return len(heard) < HEARD_MAX_BYTES


class MessageBound:
    """What a server says, message by message: of what lasts for days, each of them is bounded."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._head = b""
        self._left = 0

    def within(self, content: bytes) -> int:
        """So many bytes belong to no message that is too large; to be asked before passing on."""
        place = 0
        while place < len(content):
            if self._left:
                passed = min(self._left, len(content) - place)
                self._left -= passed
                place += passed
                continue
            wanted = HEAD.size - len(self._head)
            self._head += content[place : place + wanted]
            place += wanted
            if len(self._head) == HEAD.size:
                _, size = HEAD.unpack(self._head)
                if not LENGTH_BYTES <= size <= self._bytes_max:
                    # Some of its head may have come with what is passed on already.
                    return max(0, place - HEAD.size)
                self._left, self._head = size - LENGTH_BYTES, b""
        return len(content)


class LimitedRelay:
    """Connects a socket in `folder` to the server's, until a limit is exceeded or it ends."""

    def __init__(
        self, folder: Path, target: Place, bytes_max: float, message_bytes_max: int | None = None
    ) -> None:
        self.folder = folder
        self.exceeded = False
        """The server sent more than is allowed."""
        self.late = False
        self.foreign = False
        """The password of the login is none that the cell made."""
        self._target = target
        self._left = bytes_max
        self._message_bytes_max = message_bytes_max
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._hang_up, writer)
            self._writers.add(writer)
            with contextlib.suppress(OSError):
                peer = sockets.connect(str(self._target), 0)
                from_server, to_server = await asyncio.open_unix_connection(sock=peer)
                stack.callback(self._hang_up, to_server)
                self._writers.add(to_server)
                sending = asyncio.create_task(_pass_on(reader, to_server))
                stack.callback(sending.cancel)
                await self._answer(from_server, writer)

    def expire(self) -> None:
        self.late = True
        self.end()

    def end(self) -> None:
        for writer in tuple(self._writers):
            self._hang_up(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        salting = Salting()
        bounded = self._message_bytes_max
        messages = None if bounded is None else MessageBound(bounded)
        while content := await reader.read(CHUNK_BYTES):
            if not salting.is_ours(content):
                self.foreign = True
                self.end()
                return
            self._left -= len(content)
            if self._left < 0:
                self.exceeded = True
                self.end()
                return
            if messages is not None and (within := messages.within(content)) < len(content):
                # The messages before it are to arrive: nobody says them again.
                self.exceeded = True
                writer.write(content[:within])
                break
            writer.write(content)
            await writer.drain()
        # The server has closed the connection, or says no more that is passed on: pass that on.
        writer.close()
        await writer.wait_closed()

    def _hang_up(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        # Unsent bytes are dropped, so that a slow reader cannot delay this.
        writer.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while content := await reader.read(CHUNK_BYTES):
            writer.write(content)
            await writer.drain()
        writer.transport.abort()


@contextlib.asynccontextmanager
async def opened(
    target: Place,
    *,
    bytes_max: float,
    within_s: float | None = None,
    message_bytes_max: int | None = None,
) -> AsyncIterator[LimitedRelay]:
    """A relay to the server's socket `target`; its connections end with the block."""
    with tempfile.TemporaryDirectory(prefix="menagerie-") as name:
        relay = LimitedRelay(Path(name), target, bytes_max, message_bytes_max)
        server = await asyncio.start_unix_server(relay.serve, Path(name) / target.name)
        loop = asyncio.get_running_loop()
        ending = None if within_s is None else loop.call_later(within_s, relay.expire)
        try:
            yield relay
        finally:
            if ending is not None:
                ending.cancel()
            relay.end()
            server.close()


@contextlib.contextmanager
def opened_beside(target: Place) -> Iterator[LimitedRelay]:
    """The same for a client that blocks: on a thread of its own, and for as many bytes as come."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_serve_beside, args=(loop,), daemon=True)
    thread.start()
    opening = opened(target, bytes_max=math.inf)
    try:
        yield asyncio.run_coroutine_threadsafe(opening.__aenter__(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(opening.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _serve_beside(loop: asyncio.AbstractEventLoop) -> None:
    # Signals are for the client's thread, which they must wake.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    loop.run_forever()
