"""A conduit: a unix socket that leads to the one address of a source, and to nothing else.

Instances have no network. The cell looks at the address, connects, makes TLS and checks the
certificate; what is in the instance speaks plainly through a socket, for as long as the migration
needs it.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import structlog

from cell.layout import Site
from cell.migrations import addresses
from cell.migrations.errors import SourceUnreachableError
from cell.migrations.source_uri import SourceUri
from cell.runtime import engine_files

SOCKET = ".s.PGSQL.5432"
# Of an instance's id.
NAME_CHARACTERS = 12
CONNECT_WITHIN_S = 15.0
CHUNK_BYTES = 256 * 1024
CONNECTIONS_MAX = 16
SSL_REQUEST = struct.pack("!II", 8, 80877103)
# Of a message: its kind, and its length with this number.
HEADER = struct.Struct("!cI")
LENGTH_BYTES = 4
WELL, IN_CLEAR, SASL = (struct.pack("!I", number) for number in (0, 3, 10))
GREETINGS = (b"N", b"v", b"R", b"E")
GREETING_BYTES_MAX = 64 * 1024
NO_TLS = "the source does not offer TLS; have it enabled there, or say that TLS is off"
NOT_IN_CLEAR = (
    "the source wants the password in clear, which it gets only where TLS is verified; name the CA "
    "of its certificate, or have its user log in by scram-sha-256"
)
KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))

Spoken = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

log = structlog.get_logger("cell.migrations")


class Conduit:
    """`failure` says why the last connection was not made; `received_bytes` counts what came."""

    def __init__(self, source: SourceUri, excepted: tuple[str, ...]) -> None:
        self.source = source
        self.received_bytes = 0
        self.failure: str | None = None
        self._host = addresses.SourceHost(source.host, source.port, excepted)
        self._context = source.context()
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        far: asyncio.StreamWriter | None = None
        self._open.add(writer)
        try:
            if len(self._open) > CONNECTIONS_MAX:
                return
            from_source, far = await self.connect()
            self._open.add(far)
            self.failure = None
            await self._carry(reader, writer, from_source, far)
        except SourceUnreachableError as error:
            self.failure = str(error)
            log.info("cell.migration_source_unreachable", reason=self.failure)
        except (OSError, ssl.SSLError):
            pass
        finally:
            for each in filter(None, (writer, far)):
                self._open.discard(each)
                each.transport.abort()

    def end(self) -> None:
        for writer in tuple(self._open):
            writer.transport.abort()

    async def connect(
        self, before_tls: Spoken | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To the source itself, on which that is spoken first. Raises SourceUnreachableError."""
        source = self.source
        address = await self._host.address()
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                reader, writer = await asyncio.open_connection(
                    address, source.port, limit=CHUNK_BYTES
                )
                try:
                    _keep_alive(writer)
                    if before_tls is not None:
                        await before_tls(reader, writer)
                    if self._context is not None:
                        await self._secure(reader, writer, self._context)
                except BaseException:
                    writer.transport.abort()
                    raise
        except TimeoutError as error:
            told = f"the source did not answer within {CONNECT_WITHIN_S:.0f} s"
            if self._context is not None and source.protocol == "resp":
                # A server without TLS waits for the rest of what it takes for a command.
                told = f"{told}; if it has no TLS at this port, say that TLS is off"
            raise SourceUnreachableError(told) from error
        except ssl.SSLCertVerificationError as error:
            raise SourceUnreachableError(
                f"the certificate of the source is not valid: {error.verify_message}"
            ) from error
        except OSError as error:
            said = error.strerror or type(error).__name__
            raise SourceUnreachableError(f"the source cannot be reached: {said}") from error
        return reader, writer

    async def _secure(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext
    ) -> None:
        if self.source.protocol == "postgres":
            writer.write(SSL_REQUEST)
            # More than one byte would have come from somebody in between.
            answer = await reader.read(2)
            if answer != b"S":
                raise SourceUnreachableError(NO_TLS)
        await writer.start_tls(context, server_hostname=self.source.host)

    async def _carry(
        self,
        near: asyncio.StreamReader,
        to_near: asyncio.StreamWriter,
        far: asyncio.StreamReader,
        to_far: asyncio.StreamWriter,
    ) -> None:
        asked = asyncio.create_task(_pass_on(near, to_far))
        try:
            await let_in(far, to_near, takes_password=self.source.tls == "verify")
            while block := await far.read(CHUNK_BYTES):
                self.received_bytes += len(block)
                to_near.write(block)
                await to_near.drain()
        finally:
            if not to_near.transport.is_closing():
                to_near.close()
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(CONNECT_WITHIN_S):
                        await to_near.wait_closed()
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)


async def let_in(
    far: asyncio.StreamReader, to_near: asyncio.StreamWriter, *, takes_password: bool
) -> None:
    """Passes on what a server says until it lets somebody in, or refuses to.

    Not the logins that are bound to TLS: that ends here, and libpq refuses a server that offers
    them without. And no question for the password in clear, unless the server `takes_password`.
    Raises SourceUnreachableError where it asks that, or this is no PostgreSQL.
    """
    left = GREETING_BYTES_MAX
    while left > 0:
        try:
            head = await far.readexactly(HEADER.size)
            kind, size = HEADER.unpack(head)
            if kind not in GREETINGS or not LENGTH_BYTES <= size <= GREETING_BYTES_MAX:
                break
            content = await far.readexactly(size - LENGTH_BYTES)
        except asyncio.IncompleteReadError as error:
            to_near.write(error.partial)
            return
        asked = content[:4] if kind == b"R" else b""
        if asked == IN_CLEAR and not takes_password:
            raise SourceUnreachableError(NOT_IN_CLEAR)
        if asked == SASL:
            content = _without_bound(content)
        to_near.write(HEADER.pack(kind, len(content) + LENGTH_BYTES) + content)
        await to_near.drain()
        if kind == b"E" or asked == WELL:
            return
        left -= size
    raise SourceUnreachableError("what answers at the source is no PostgreSQL")


def _without_bound(content: bytes) -> bytes:
    names = [each for each in content[4:].split(b"\0") if each]
    return SASL + b"".join(each + b"\0" for each in names if not each.endswith(b"-PLUS")) + b"\0"


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while block := await reader.read(CHUNK_BYTES):
            writer.write(block)
            await writer.drain()
        writer.transport.abort()


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connected = writer.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in KEEPALIVE:
        connected.setsockopt(socket.IPPROTO_TCP, option, value)


@contextlib.asynccontextmanager
async def opened(
    conduit: Conduit,
    folder: Path,
    owner: int | None,
    serve: Spoken | None = None,
) -> AsyncIterator[Path]:
    """In a folder of the cell's that only `owner` can enter; it ends with the block.

    Whoever connects is led to the source, or served otherwise by `serve`.
    """
    path = await asyncio.to_thread(_prepared, folder)
    server = await asyncio.start_unix_server(serve or conduit.serve, path, limit=CHUNK_BYTES)
    try:
        if owner is not None and os.geteuid() == 0:
            os.chown(folder, 0, owner)
            os.chown(path, owner, owner)
        yield folder
    finally:
        server.close()
        conduit.end()
        await asyncio.to_thread(engine_files.remove, folder)


def folder_of(site: Site) -> Path:
    """Among the folders of sockets, where paths are short enough for one."""
    run = site.run.top
    return run.with_name(f"{run.name[-NAME_CHARACTERS:]}-source")


def _prepared(folder: Path) -> Path:
    """Where the socket will be. The folder's mode is set apart from what the cell's mask allows."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o750)
    path = folder / SOCKET
    path.unlink(missing_ok=True)
    return path
