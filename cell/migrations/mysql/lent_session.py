"""A source's session in the hands of a tool: it asks, and sends nothing else.

The tool meets a server that lets everybody in; its questions go to the source on the connection
that the cell has logged in on, and the answers come back. When it says that it is done, the
connection goes on, and with it the transaction of the dump.
"""

import asyncio
import secrets
import struct

from cell.migrations.conduit import CHUNK_BYTES
from cell.migrations.errors import MigrationError
from cell.migrations.mysql import login
from cell.migrations.mysql.session import BROKE_OFF, FILE_WANTED, QUERY, QUIT, SourceSession
from gateway.protocols import mysql_wire as wire
from gateway.protocols.mysql_wire import Greeting

USE, PING = b"\x02", b"\x0e"
ASKED = frozenset((QUERY, USE, PING))
ASKED_BYTES_MAX = 1 << 20
WELL = bytes((wire.OK, 0, 0)) + struct.pack("<HH", wire.AUTOCOMMIT, 0)


class LentSession:
    """For one connection of one tool. `failure` says why it was broken off."""

    def __init__(self, session: SourceSession) -> None:
        self._session = session
        self._is_taken = False
        self.failure: str | None = None
        self.has_quit = False

    async def serve(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        try:
            if not self._is_taken:
                self._is_taken = True
                await self._serve(near, to_near)
        except (OSError, EOFError, wire.MySqlWireError):
            pass
        except MigrationError as error:
            self.failure = str(error)
        finally:
            to_near.transport.abort()

    async def _serve(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        scramble = bytes(33 + secrets.randbelow(94) for _ in range(wire.SCRAMBLE_BYTES))
        plugin = login.NATIVE.encode()
        greeting = Greeting(self._session.version, login.CAPABILITIES, scramble, plugin, 1)
        to_near.write(wire.frame(wire.build_greeting(greeting), 0))
        # Who it says that it is has no meaning.
        sequence, _ = await _packet(near)
        to_near.write(wire.frame(WELL, sequence + 1))
        answering = asyncio.create_task(self._answer(to_near))
        asking = asyncio.create_task(self._ask(near))
        try:
            both = {answering, asking}
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in (answering, asking):
                each.cancel()
            await asyncio.gather(answering, asking, return_exceptions=True)

    async def _ask(self, near: asyncio.StreamReader) -> None:
        while True:
            sequence, payload = await _packet(near)
            if sequence:
                # What continues something is a file, or a login anew.
                raise MigrationError(FILE_WANTED)
            if payload[:1] == QUIT:
                self.has_quit = True
                return
            if payload[:1] not in ASKED:
                raise MigrationError("the tool asked for what no dump needs")
            self._session.send(payload, 0)
            await self._session.writer.drain()
            # What the tool has sent already is read without waiting.
            await asyncio.sleep(0)

    async def _answer(self, to_near: asyncio.StreamWriter) -> None:
        session = self._session
        while block := await session.reader.read(CHUNK_BYTES):
            session.conduit.received_bytes += len(block)
            to_near.write(block)
            await to_near.drain()
        raise MigrationError(BROKE_OFF)


async def _packet(near: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await near.readexactly(wire.HEADER_BYTES)
    size = int.from_bytes(head[:3], "little")
    if size > ASKED_BYTES_MAX:
        raise MigrationError("the tool asked for more than a dump needs")
    return head[3], await near.readexactly(size)
