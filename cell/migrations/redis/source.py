"""A connection to a running Redis or Valkey: what it is asked, and what it sends its replicas."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Final, NamedTuple, TypeAlias

from cell.engines.driver import Login
from cell.migrations.conduit import Conduit
from cell.migrations.errors import MigrationError
from cell.migrations.report import bounded
from gateway import sockets

# As a server ends what it sends while it makes it.
MARK_BYTES: Final = 40
EMPTY_LINE_S: Final = 0.1
ANSWER_BYTES_MAX: Final = 4 * 2**20
# What a value takes here at least, and after how many others have their turn.
VALUE_BYTES: Final = 16
VALUES_A_TURN: Final = 1_000
DEPTH_MAX: Final = 8
RIGHTS: Final = "the user needs the rights +ping, +psync and +replconf, and +info to be followed"
NOT_ONE: Final = "the source did not send its data as Redis and Valkey do"
_REPLID: Final = re.compile(r"[0-9a-f]{40}", re.ASCII)
BROKEN: Final = (OSError, EOFError, asyncio.LimitOverrunError)
Value: TypeAlias = "bytes | int | list[Value] | None"


class SourceRefusedError(MigrationError):
    """The source understood what it was asked, and refused it."""


class PsyncAnswer(NamedTuple):
    """To PSYNC. All data comes where `is_full`, with its `offset`; otherwise what came since."""

    is_full: bool
    replid: str | None
    offset: int


class ServerSource:
    """What is said to it and what it answers; nothing of a secret is in an error."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence_s: float
    ) -> None:
        self._reader, self._writer, self._silence_s = reader, writer, silence_s

    def tell(self, *words: str) -> None:
        """What it does not answer."""
        encoded = [word.encode() for word in words]
        told = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
        self._writer.write(b"*%d\r\n%s" % (len(words), told))

    async def ask(self, *words: str) -> str:
        """Raises SourceRefusedError where it refuses."""
        self.tell(*words)
        answer = await self.content()
        said = bounded(answer[1:].decode(errors="replace"))
        if answer.startswith(b"+"):
            return said
        hint = f"; {RIGHTS}" if answer.startswith(b"-NOPERM") else ""
        raise SourceRefusedError(f"the source refused {words[0]}: {said}{hint}")

    async def value(self, *words: str | bytes) -> Value:
        """Raises SourceRefusedError, and EOFError where the answer cannot be read."""
        return (await self.values(words))[0]

    async def values(self, *commands: tuple[str | bytes, ...]) -> list[Value]:
        """Of several commands at once; the first that is refused is raised when all have come."""
        for words in commands:
            encoded = [word.encode() if isinstance(word, str) else word for word in words]
            told = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
            self._writer.write(b"*%d\r\n%s" % (len(words), told))
        async with asyncio.timeout(self._silence_s):
            read = _AnswerReader(self._reader)
            answers = [await read.value() for _ in commands]
        for words, answer in zip(commands, answers, strict=True):
            if isinstance(answer, MigrationError):
                name = words[0] if isinstance(words[0], str) else words[0].decode()
                raise SourceRefusedError(f"the source refused {name}: {answer}")
        return [each for each in answers if not isinstance(each, MigrationError)]

    async def line(self) -> bytes:
        async with asyncio.timeout(self._silence_s):
            return (await self._reader.readuntil(b"\n")).rstrip(b"\r\n")

    async def content(self) -> bytes:
        """The next line that is not empty, by which it says each second that it is still at it."""
        while not (line := await self.line()):  # noqa: ASYNC110 - what is waited for is sent
            # What has arrived is read without waiting: from one that sends nothing else, the cell
            # would hear nobody but it.
            await asyncio.sleep(EMPTY_LINE_S)
        return line

    async def block(self, most: int) -> bytes:
        """Raises EOFError where it has ended."""
        async with asyncio.timeout(self._silence_s):
            block = await self._reader.read(most)
        if not block:
            raise EOFError("it ended before all had come")
        return block

    async def block_soon(self, most: int, within_s: float) -> bytes | None:
        """None where nothing comes within that time."""
        try:
            async with asyncio.timeout(within_s):
                block = await self._reader.read(most)
        except TimeoutError:
            return None
        if not block:
            raise EOFError("it ended the connection")
        return block

    async def asked_for_data(self, replid: str = "?", offset: int = -1) -> PsyncAnswer:
        """All of it, or what came after what is known."""
        await self.ask("REPLCONF", "capa", "eof", "capa", "psync2")
        words = (await self.ask("PSYNC", replid, str(offset))).split()
        if words[:1] == ["CONTINUE"] and replid != "?":
            new = words[1] if words[1:] else None
            if new is not None and not _REPLID.fullmatch(new):
                raise MigrationError(NOT_ONE)
            return PsyncAnswer(False, new, offset)
        found = words[2] if len(words) == 3 and words[0] == "FULLRESYNC" else ""  # noqa: PLR2004
        is_one = _REPLID.fullmatch(words[1]) if found.isdigit() and len(found) <= 18 else None  # noqa: PLR2004
        # A copy needs neither.
        return PsyncAnswer(True, words[1] if is_one else None, int(found) if is_one else -1)


class _AnswerReader:
    """Of RESP 2, within bounds. An error is a value, so that those after it are read."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._left = ANSWER_BYTES_MAX
        self._read = 0

    async def value(self, depth: int = 0) -> "Value | MigrationError":
        line = (await self._reader.readuntil(b"\r\n"))[:-2]
        self._expect(len(line) + VALUE_BYTES)
        self._read += 1
        if self._read % VALUES_A_TURN == 0:
            await asyncio.sleep(0)
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            return MigrationError(bounded(rest.decode(errors="replace")))
        if kind == b"+":
            return rest
        try:
            number = int(rest[:20])
        except ValueError as error:
            raise EOFError("it answered what cannot be read") from error
        if kind == b":":
            return number
        if number < 0:
            return None
        self._expect(number)
        if kind == b"$":
            return (await self._reader.readexactly(number + 2))[:-2]
        if kind != b"*" or depth == DEPTH_MAX:
            raise EOFError("it answered what cannot be read")
        found = [await self.value(depth + 1) for _ in range(number)]
        return [None if isinstance(each, MigrationError) else each for each in found]

    def _expect(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise EOFError("its answer is too large")


@contextlib.asynccontextmanager
async def logged_in(conduit: Conduit, silence_s: float) -> AsyncIterator[ServerSource]:
    """Raises MigrationError where it refuses, and one of BROKEN or TimeoutError else."""
    reader, writer = await conduit.connect()
    source = ServerSource(reader, writer, silence_s)
    try:
        uri = conduit.source
        if uri.password:
            name = [uri.user] if uri.user else []
            await source.ask("AUTH", *name, uri.password)
        await source.ask("PING")
        yield source
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def local_source(socket: str, login: Login, silence_s: float) -> AsyncIterator[ServerSource]:
    """An engine of ours that is asked the same as a source."""
    reader, writer = await asyncio.open_unix_connection(sock=sockets.connect(socket, 0))
    try:
        source = ServerSource(reader, writer, silence_s)
        await source.ask("AUTH", login.username, login.password)
        yield source
    finally:
        writer.transport.abort()


def count_of(told: bytes) -> int:
    if not told.isdigit() or len(told) > 18:  # noqa: PLR2004 - of what 64 bits hold
        raise MigrationError(NOT_ONE)
    return int(told)


def why(error: BaseException) -> str:
    """It broke off, for people."""
    return str(error) or type(error).__name__
