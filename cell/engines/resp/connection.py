"""RESP on a unix socket, as drivers need it: commands one after the other, with plain answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias, TypeVar

from cell.engines.driver import Login
from gateway import sockets

END = b"\r\n"
# Of an answer that the engine's owner has a hand in.
NESTED_BYTES_MAX = 4 * 2**20
Answer: TypeAlias = "str | list[Answer]"
T = TypeVar("T")


class RefusalError(Exception):
    """The engine understood the command and refused it; the text is the engine's."""


def is_full(error: RefusalError) -> bool:
    """Whether the engine has no place left for a connection."""
    return str(error).startswith("ERR max number of clients")


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._left = 0

    async def ask(self, *words: str) -> str:
        """The answer as text; raises RefusalError for an error, ConnectionError for none."""
        return "\n".join(await self.ask_list(*words))

    async def ask_list(self, *words: str) -> list[str]:
        """The answer's texts, where it is a list."""
        return await self._asked(words, self._answers)

    async def ask_nested(self, *words: str) -> Answer:
        """Lists within lists, nothing as an empty one.

        Raises ValueError, after which the connection is of no use, for one that is very large.
        """
        self._left = NESTED_BYTES_MAX
        return await self._asked(words, self._nested)

    async def _asked(self, words: tuple[str, ...], answer: Callable[[], Awaitable[T]]) -> T:
        encoded = [word.encode() for word in words]
        parts = [b"*%d\r\n" % len(encoded)]
        parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded]
        self._writer.write(b"".join(parts))
        try:
            await self._writer.drain()
            return await answer()
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("the engine closed the connection") from error

    async def _nested(self) -> Answer:
        line = await self._line()
        count = int(line[1:]) if line[:1] in b"*$" else 0
        self._left -= max(count, len(line))
        if self._left < 0:
            raise ValueError("the answer is too large")
        if count < 0:
            return []
        if line[:1] == b"*":
            return [await self._nested() for _ in range(count)]
        return await self._answer(line)

    async def _answers(self) -> list[str]:
        line = await self._line()
        if line[:1] != b"*":
            return [await self._answer(line)]
        return [await self._answer(await self._line()) for _ in range(int(line[1:]))]

    async def _line(self) -> bytes:
        return (await self._reader.readuntil(END)).removesuffix(END)

    async def _answer(self, line: bytes) -> str:
        kind, rest = line[:1], line[1:].decode(errors="replace")
        if kind == b"-":
            raise RefusalError(rest)
        if kind in b"+:":
            return rest
        if kind != b"$":
            raise RefusalError(f"unexpected response of type {kind!r}")
        content = await self._reader.readexactly(max(0, int(rest)) + len(END))
        return content.removesuffix(END).decode(errors="replace")


@contextlib.asynccontextmanager
async def connected(
    socket: str, login: Login, timeout_s: float = 10.0
) -> AsyncIterator[Connection]:
    """A connection that is logged in; the whole of its use ends within the time.

    Raises OSError where nobody answers (in time), and RefusalError where the login is not taken.
    """
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_unix_connection(sock=sockets.connect(socket, 0))
        try:
            connection = Connection(reader, writer)
            await connection.ask("AUTH", login.username, login.password)
            yield connection
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
