"""The changes of a database as its server sends them: decoded from its WAL, once, in order.

The server keeps what was not confirmed. It waits where nobody reads, and puts long transactions
on its own disk, so that little of them is in memory at any time.
"""

import asyncio
import contextlib
import struct
import time
from collections.abc import Iterator

import psycopg
from psycopg import pq
from psycopg.rows import TupleRow

from cell.migrations.errors import MigrationError
from cell.migrations.postgres.pgoutput import Decoder, Message
from cell.migrations.postgres.quoting import identifier
from cell.migrations.postgres.tables import ALIKE

ROW_BYTES_MAX = 16 * 2**20
"""Of one change as text. What is larger ends the connection."""
STATUS_EVERY_S = 1.0
ANSWER_WITHIN_S = 60.0
_DATA = struct.Struct("!cQQq")
_KEEPALIVE = struct.Struct("!cQqB")
_STATUS = struct.Struct("!cQQQqB")
_ENDED = -1


def position(text: str) -> int:
    """Of a pg_lsn as it is written."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def written(place: int) -> str:
    return f"{place >> 32:X}/{place & 0xFFFFFFFF:X}"


class ChangeStream:
    """`reached`: what the server has decoded, as it last said between two transactions."""

    def __init__(self, connection: psycopg.AsyncConnection[TupleRow]) -> None:
        self.reached = 0
        self._pgconn = connection.pgconn
        self._decoder = Decoder()
        self._confirmed = 0
        self._told_at = 0.0

    async def start(self, name: str, after: int) -> None:
        """Of the slot and the publication of that name, what was committed after a position."""
        await self._run("; ".join(ALIKE))
        options = f"proto_version '1', publication_names '{identifier(name)}', origin 'none'"
        start = f"START_REPLICATION SLOT {identifier(name)} LOGICAL {written(after)} ({options})"
        await self._run(start)

    def next(self) -> Message | None:
        """What has arrived; None where nothing has. Raises MigrationError once it has ended."""
        while True:
            with _told():
                size, content = self._pgconn.get_copy_data(1)
                if size == _ENDED:
                    found = self._pgconn.get_result()
                    said = found.error_message if found else b""
                    raise MigrationError(_said(said))
            if not size:
                return None
            message = bytes(content)
            if message[:1] == b"k":
                self.reached = max(self.reached, _KEEPALIVE.unpack(message)[1])
            elif (decoded := self._decoder.decode(message[_DATA.size :])) is not None:
                return decoded

    async def wait(self, within_s: float) -> None:
        """Until more arrives, or for as long."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        socket = self._pgconn.socket
        loop.add_reader(socket, arrived.set)
        try:
            async with asyncio.timeout(within_s):
                await arrived.wait()
        except TimeoutError:
            return
        finally:
            loop.remove_reader(socket)
        with _told():
            self._pgconn.consume_input()

    async def confirm(self, applied: int) -> None:
        """What was committed before need not be kept; and the server says how far it is."""
        is_due = time.monotonic() - self._told_at > STATUS_EVERY_S
        if applied <= self._confirmed and not is_due:
            return
        self._confirmed = max(applied, self._confirmed)
        told = (self._confirmed,) * 3
        with _told():
            self._pgconn.put_copy_data(_STATUS.pack(b"r", *told, 0, int(is_due)))
        await self._flush()
        if is_due:
            self._told_at = time.monotonic()

    async def _flush(self) -> None:
        with _told():
            while self._pgconn.flush():
                await self._writable()

    async def _writable(self) -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_writer(self._pgconn.socket, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(self._pgconn.socket)

    async def _run(self, statement: str) -> None:
        """In the simple protocol, beside which such a connection has none."""
        with _told():
            self._pgconn.send_query(statement.encode())
        await self._flush()
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while True:
            while self._pgconn.is_busy():
                if time.monotonic() > deadline:
                    raise MigrationError("the engine of the instance does not respond")
                await self.wait(STATUS_EVERY_S)
            with _told():
                found = self._pgconn.get_result()
            if found is None:
                return
            if found.status == pq.ExecStatus.FATAL_ERROR:
                raise MigrationError(_said(found.error_message))
            if found.status == pq.ExecStatus.COPY_BOTH:
                return


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise MigrationError(_said(str(error).encode())) from error


def _said(message: bytes) -> str:
    said = message.decode(errors="replace").rpartition("ERROR:")[2].strip().split("\n")[0]
    return f"the instance stopped sending its changes: {said or 'the connection was closed'}"
