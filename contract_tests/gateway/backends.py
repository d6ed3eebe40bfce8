"""Real servers on unix sockets for the gateway to lead to, each on a loop of its own thread."""

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

WAIT_S = 60.0
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Backend:
    """Counts what reached it; `handler` speaks whatever protocol the test needs."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self.path = path
        self.connections = 0
        self._handler = handler
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._ready.wait(WAIT_S)

    def stop(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self.path.unlink(missing_ok=True)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(
            asyncio.start_unix_server(self._connected, self.path, limit=2**20)
        )
        self._ready.set()
        self._loop.run_forever()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


async def read_head(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    return method, path, headers


def answer(body: bytes, status: str = "200 OK", extra: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{extra}\r\n".encode() + body


def pattern(size_bytes: int) -> bytes:
    """Bytes in which a lost, doubled or swapped piece shows."""
    block = b"".join(number.to_bytes(4, "big") for number in range(min(size_bytes, 2**20) // 4 + 1))
    return (block * (size_bytes // len(block) + 1))[:size_bytes]


def http(name: str) -> Handler:
    """Keep-alive HTTP: /name, /echo, /bytes/N, /digest, /early (answers unread), /slow/SECONDS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                _, path, headers = await read_head(reader)
            except asyncio.IncompleteReadError:
                return
            if path == "/early":
                writer.write(answer(b"too large", "413 Too Large", "connection: close\r\n"))
                return
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            if path == "/echo":
                writer.write(answer(body))
            elif path == "/digest":
                writer.write(answer(hashlib.sha256(body).hexdigest().encode()))
            elif path.startswith("/bytes/"):
                writer.write(answer(pattern(int(path.removeprefix("/bytes/")))))
            else:
                if path.startswith("/slow/"):
                    await asyncio.sleep(float(path.removeprefix("/slow/")))
                writer.write(answer(name.encode()))
            await writer.drain()

    return serve
