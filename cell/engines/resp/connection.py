"""RESP on a unix socket, as drivers need it: commands one after the other, with plain answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias, TypeVar

from cell.engines.driver import Login
from gateway import sockets

END = b"\r\n"
# The engine is its owner's: an answer may be large on purpose, or be none at all.
ANSWER_BYTES_MAX = 4 * 2**20
DEPTH_MAX = 16
# However long a connection may last: an engine that answers nobody is found out once whoever holds
# its lock has given up.
ANSWER_WITHIN_S = 15.0
# So many lines are read until others have their turn: an answer may be there as a whole.
LINES_A_TURN = 1_000
Answer: TypeAlias = "str | list[Answer]"
T = TypeVar("T")


class RefusalError(Exception):
    """The engine understood the command and refused it; the text is the engine's."""


class UnreadableReplyError(ConnectionAbortedError, ValueError):
    """The answer is too large, or is none; the connection is of no use any more."""


def is_full(error: RefusalError) -> bool:
    """Whether the engine has no place left for a connection."""
    return str(error).startswith("ERR max number of clients")


class RespConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._left = 0
        self._lines = 0

    async def ask(self, *words: str) -> str:
        """The answer as text; raises RefusalError for an error, OSError for none (in time)."""
        return "\n".join(await self.ask_list(*words))

    async def ask_list(self, *words: str) -> list[str]:
        """The answer's texts, where it is a list."""
        return await self._asked(words, self._answers)

    async def info(self, *sections: str) -> dict[str, str]:
        lines = (await self.ask("INFO", *sections)).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    async def ask_nested(self, *words: str) -> Answer:
        """Lists within lists, nothing as an empty one."""
        return await self._asked(words, self._nested)

    async def _asked(self, words: tuple[str, ...], answer: Callable[[], Awaitable[T]]) -> T:
        encoded = [word.encode() for word in words]
        parts = [b"*%d\r\n" % len(encoded)]
        parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded]
        self._writer.write(b"".join(parts))
        self._left = ANSWER_BYTES_MAX
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await self._writer.drain()
                return await answer()
        except TimeoutError as error:
            raise TimeoutError(f"no answer within {ANSWER_WITHIN_S:.0f} s") from error
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("the engine closed the connection") from error
        except (asyncio.LimitOverrunError, ValueError) as error:
            raise UnreadableReplyError(f"the engine's answer cannot be read: {error}") from error

    async def _nested(self, depth: int = 0) -> Answer:
        line = await self._line()
        if line in {b"*-1", b"$-1"}:
            return []
        if line[:1] != b"*":
            return await self._answer(line)
        if depth == DEPTH_MAX:
            raise ValueError("it is nested too deeply")
        return [await self._nested(depth + 1) for _ in range(self._count(line))]

    async def _answers(self) -> list[str]:
        line = await self._line()
        if line[:1] != b"*":
            return [await self._answer(line)]
        return [await self._answer(await self._line()) for _ in range(self._count(line))]

    async def _line(self) -> bytes:
        self._lines += 1
        if self._lines % LINES_A_TURN == 0:
            await asyncio.sleep(0)
        line = await self._reader.readuntil(END)
        self._expect(len(line))
        return line.removesuffix(END)

    def _count(self, line: bytes) -> int:
        count = int(line[1:])
        self._expect(count)
        return count

    def _expect(self, size: int) -> None:
        self._left -= max(0, size)
        if self._left < 0:
            raise ValueError("it is too large")

    async def _answer(self, line: bytes) -> str:
        kind, rest = line[:1], line[1:].decode(errors="replace")
        if kind == b"-":
            raise RefusalError(rest)
        if kind in b"+:":
            return rest
        if kind != b"$":
            raise ValueError(f"it is of type {kind!r}")
        content = await self._reader.readexactly(max(0, self._count(line)) + len(END))
        return content.removesuffix(END).decode(errors="replace")


@contextlib.asynccontextmanager
async def connected(
    socket: str, login: Login, timeout_s: float = 10.0
) -> AsyncIterator[RespConnection]:
    """A connection that is logged in; the whole of its use ends within the time.

    Raises OSError where nobody answers (in time), and RefusalError where the login is not taken.
    """
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_unix_connection(sock=sockets.connect(socket, 0))
        try:
            connection = RespConnection(reader, writer)
            await connection.ask("AUTH", login.username, login.password)
            yield connection
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
