"""A socket on this machine that leads to an instance, for programs without TLS of their own."""

import asyncio
import contextlib
import tempfile
import threading
from pathlib import Path
from typing import Final

from clients.closing import Closing
from clients.credentials import Credential
from clients.hosts import LOOPBACK, is_local
from clients.sessions.session import CONNECT_TIMEOUT_S
from clients.transport import Authorities

# What libpq looks for in a folder.
PORT: Final = 5432
CHUNK_BYTES: Final = 1 << 18
ALPN: Final = "postgresql"


class PostgresTunnel(Closing):
    """Only this user can open the socket in `folder`. Certificate and name are verified here.

    So any build of libpq will do, also without TLS, without SNI, or where the name does not
    resolve. `failure` says why the instance could not be reached, where it could not.
    """

    def __init__(self, credential: Credential, authorities: Authorities) -> None:
        self.failure: str | None = None
        self._credential = credential
        self._context = authorities.context()
        self._context.set_alpn_protocols([ALPN])
        self._place = tempfile.TemporaryDirectory(prefix="menagerie-")
        self.folder = Path(self._place.name)
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._place.cleanup()

    async def _listen(self) -> asyncio.Server:
        path = self.folder / f".s.PGSQL.{PORT}"
        return await asyncio.start_unix_server(self._carry, path, limit=CHUNK_BYTES)

    async def _end(self) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _carry(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        # asyncio's streams complain about a connection's task that ends by having been canceled.
        with contextlib.suppress(asyncio.CancelledError):
            await self._carry_until_canceled(near, back)

    async def _carry_until_canceled(
        self, near: asyncio.StreamReader, back: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        with contextlib.closing(back):
            try:
                far, forth = await self._connected()
            except (OSError, TimeoutError) as error:
                self.failure = str(error) or "it is not responding"
                return
            with contextlib.closing(forth):
                ways = _copy(near, forth), _copy(far, back)
                with contextlib.suppress(OSError):
                    await asyncio.gather(*ways)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = self._credential.host
        opening = asyncio.open_connection(
            # *.localhost does not resolve everywhere; the name is still what is verified.
            LOOPBACK if is_local(host) else host,
            self._credential.port,
            ssl=self._context,
            server_hostname=host,
            limit=CHUNK_BYTES,
        )
        return await asyncio.wait_for(opening, CONNECT_TIMEOUT_S)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Until one side ends; what is not taken yet is waited for, so nothing piles up."""
    try:
        while content := await source.read(CHUNK_BYTES):
            target.write(content)
            await target.drain()
    finally:
        target.close()
