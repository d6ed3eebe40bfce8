"""A connection to a source that has logged in: asked by the cell, or lent to a tool that dumps.

What the source answers is read with bounds: bytes, rows, and time without a word.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from cell.migrations.conduit import CHUNK_BYTES, Conduit
from cell.migrations.errors import MigrationError, SourceUnreachableError
from cell.migrations.mysql import login
from cell.migrations.mysql.login import Hello, told
from gateway.protocols import mysql_wire as wire
from gateway.protocols.mysql_wire import MySqlWireError, Packet

# Of one answer, and of one row of it.
ANSWER_BYTES_MAX = 64 * 2**20
PACKET_BYTES_MAX = 1 << 20
ROWS_MAX = 200_000
ASKED_BYTES_MAX = 8 * 2**20
# So many packets are read before anything else has a turn.
PACKETS_AT_ONCE = 500
# Of what 64 bits hold.
DIGITS_MAX = 20
END_WITHIN_S = 5.0
QUIT, QUERY = b"\x01", b"\x03"
EOF_BYTES_MAX = 9
OK, LOCAL_FILE, EOF, ERROR = 0x00, 0xFB, 0xFE, 0xFF
FILE_WANTED = "the source asked for a file of the client's; nothing was sent"
BROKE_OFF = "the source ended the connection"
UNREADABLE = "the source gave an answer that cannot be read"
# Names as they are, times as in no zone, and no limits of a server's that has them for all.
ALIKE = (
    "SET NAMES utf8mb4",
    "SET /*M!100101 max_statement_time=0, */ /*!50708 max_execution_time=0, */ sql_mode=''",
    "SET time_zone='+00:00', net_write_timeout=600, net_read_timeout=600",
)
Row = tuple[str | None, ...]


class QueryRefusedError(MigrationError):
    """The source refused what it was asked."""

    def __init__(self, said: wire.ServerError) -> None:
        super().__init__(f"the source refused a question: {told(said)}")


class PacketTooLongError(MigrationError):
    """More than is read at once."""


class SourceSession:
    """`version` is what the source says it is. After an error it is of no use any more."""

    def __init__(
        self,
        conduit: Conduit,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        version: str,
        silence_s: float,
    ) -> None:
        self.conduit = conduit
        self.reader = reader
        self.writer = writer
        self.version = version
        self.silence_s = silence_s
        self._sequence = 0
        self._packets = 0
        self._heard = bytearray()

    async def rows(self, sql: str, columns: int = 1, within_s: float | None = None) -> list[Row]:
        """What it answers, within so many seconds without a word. Raises MigrationError."""
        silence_s = within_s or self.silence_s
        if self._heard:
            # It said more than it was asked.
            raise MigrationError(UNREADABLE)
        self.ask(QUERY + sql.encode())
        try:
            return await self._answer(columns, silence_s)
        except MySqlWireError as error:
            raise MigrationError(UNREADABLE) from error

    async def row(self, sql: str, columns: int, within_s: float | None = None) -> Row:
        """Of an answer that has one."""
        found = await self.rows(sql, columns, within_s)
        if len(found) != 1:
            raise MigrationError(UNREADABLE)
        return found[0]

    async def run(self, *statements: str) -> None:
        for each in statements:
            await self.rows(each)

    async def _answer(self, columns: int, silence_s: float) -> list[Row]:
        first = (await self.packet(silence_s)).payload
        kind = first[:1]
        if kind == bytes((OK,)):
            return []
        if kind == bytes((LOCAL_FILE,)):
            raise MigrationError(FILE_WANTED)
        if kind == bytes((ERROR,)):
            raise QueryRefusedError(wire.parse_error(first))
        if wire.read_count(first) != columns:
            raise MigrationError(UNREADABLE)
        for _ in range(columns + 1):
            # Columns are as they were asked for; after them comes a mark.
            await self.packet(silence_s)
        return await self._rows(columns, silence_s)

    async def _rows(self, count: int, silence_s: float) -> list[Row]:
        found: list[Row] = []
        left = ANSWER_BYTES_MAX
        while True:
            payload = (await self.packet(silence_s)).payload
            if payload[:1] == bytes((EOF,)) and len(payload) < EOF_BYTES_MAX:
                return found
            if payload[:1] == bytes((ERROR,)):
                raise QueryRefusedError(wire.parse_error(payload))
            left -= len(payload)
            if left < 0 or len(found) >= ROWS_MAX:
                raise MigrationError("the source answered with more than can be read")
            found.append(_row(payload, count))

    def send(self, payload: bytes, sequence: int) -> None:
        """A question may have thousands of columns, and is longer than what a login has."""
        if len(payload) > ASKED_BYTES_MAX:
            # Only a source that lies has so many names.
            raise MigrationError(UNREADABLE)
        self.writer.write(len(payload).to_bytes(3, "little") + bytes((sequence & 0xFF,)) + payload)

    def ask(self, payload: bytes) -> None:
        """What is heard next is the answer."""
        self._sequence = 1
        self.send(payload, 0)

    @property
    def has_packet(self) -> bool:
        """Whether the next one has arrived as a whole."""
        size = int.from_bytes(self._heard[:3], "little")
        return len(self._heard) >= wire.HEADER_BYTES + size

    async def packet(self, silence_s: float, bytes_max: int = PACKET_BYTES_MAX) -> Packet:
        """The next one of an answer."""
        self._packets += 1
        if self._packets % PACKETS_AT_ONCE == 0:
            # What has arrived already is read without waiting.
            await asyncio.sleep(0)
        await self._fill(wire.HEADER_BYTES, silence_s)
        size, sequence = int.from_bytes(self._heard[:3], "little"), self._heard[3]
        if sequence != self._sequence & 0xFF:
            raise MigrationError(UNREADABLE)
        if size > bytes_max:
            raise PacketTooLongError(UNREADABLE)
        end = wire.HEADER_BYTES + size
        await self._fill(end, silence_s)
        payload = bytes(self._heard[wire.HEADER_BYTES : end])
        del self._heard[:end]
        self._sequence += 1
        return Packet(sequence, payload)

    async def _fill(self, count: int, silence_s: float) -> None:
        """Until so many bytes of it are there."""
        while len(self._heard) < count:
            try:
                async with asyncio.timeout(silence_s):
                    block = await self.reader.read(CHUNK_BYTES)
            except TimeoutError as error:
                raise MigrationError(
                    f"the source did not answer within {silence_s:.0f} s; a lock may be held there"
                ) from error
            except OSError as error:
                raise SourceUnreachableError(BROKE_OFF) from error
            if not block:
                raise SourceUnreachableError(BROKE_OFF)
            self.conduit.received_bytes += len(block)
            self._heard += block

    async def log_in(self, hello: Hello) -> None:
        assert hello.greeting is not None
        sequence = hello.login_sequence

        async def receive() -> Packet:
            return await self.packet(self.silence_s)

        def send(payload: bytes, number: int) -> None:
            self._sequence = number + 1
            self.send(payload, number)

        try:
            source = self.conduit.source
            await login.log_in(source, hello.greeting, send, receive, sequence)
        except MySqlWireError as error:
            raise MigrationError(UNREADABLE) from error


def _row(payload: bytes, count: int) -> Row:
    found = wire.read_row(payload, count)
    try:
        return tuple(None if each is None else each.decode() for each in found)
    except UnicodeDecodeError as error:
        raise MigrationError(UNREADABLE) from error


@contextlib.asynccontextmanager
async def opened(conduit: Conduit, silence_s: float) -> AsyncIterator[SourceSession]:
    """Logged in, and in one state whatever the server's usual one is; it ends with the block.

    Raises SourceUnreachableError, and MigrationError where it refuses.
    """
    async with _connected(conduit, silence_s) as session:
        (number,) = await session.row("SELECT CONNECTION_ID()", 1)
        try:
            yield session
        except BaseException:
            session.writer.transport.abort()
            with contextlib.suppress(MigrationError, OSError, TimeoutError):
                async with asyncio.timeout(END_WITHIN_S):
                    await _end_there(conduit, count_of(number))
            raise


@contextlib.asynccontextmanager
async def _connected(conduit: Conduit, silence_s: float) -> AsyncIterator[SourceSession]:
    hello = Hello(conduit.source)
    reader, writer = await conduit.connect(hello.hear)
    try:
        assert hello.greeting is not None
        version = hello.greeting.version.removeprefix("5.5.5-")
        session = SourceSession(conduit, reader, writer, version, silence_s)
        await session.log_in(hello)
        await session.run(*ALIKE)
        yield session
        with contextlib.suppress(OSError):
            session.send(QUIT, 0)
            await writer.drain()
    finally:
        writer.transport.abort()


async def _end_there(conduit: Conduit, number: int) -> None:
    """A server that waits for a lock, or reads, does not notice that nobody listens."""
    user = literal(conduit.source.user)
    asked = f"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {number}"  # noqa: S608
    async with _connected(conduit, END_WITHIN_S) as session:
        if await session.row(f"{asked} AND USER = {user}", 1) == ("1",):
            await session.run(f"KILL {number}")


def identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """As it stands where backslashes escape, which `ALIKE` sees to."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def listed(texts: Sequence[str]) -> str:
    return ", ".join(map(literal, texts))


def count_of(said: str | None) -> int:
    """A number that a source says. Raises MigrationError."""
    digits = (said or "0").partition(".")[0]
    if not digits.isdecimal() or len(digits) > DIGITS_MAX:
        raise MigrationError(UNREADABLE)
    return int(digits)
