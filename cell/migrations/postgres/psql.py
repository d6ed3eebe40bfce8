"""How a migration asks a server: by psql in the instance's sandbox, and never in the cell itself.

Whatever a source says is read by a program that has no rights, no files and little memory.
"""

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from cell.migrations.errors import MigrationError
from cell.runtime.confined_tools import ConfinedTool, ConfinedToolError, Toolbox
from cell.runtime.confinement import Mount
from cell.runtime.own_threads import in_own_thread

CONNECT_TIMEOUT_S = 20
# Of what a server answers to one question about names and figures.
ANSWER_BYTES_MAX = 64 * 2**20
ROWS_MAX = 200_000
# Of one about a single figure.
VALUE_BYTES_MAX = 64 * 1024
# So many lines are read, and so many bytes of them understood, before anything else has a turn.
LINES_AT_ONCE = 500
BYTES_AT_ONCE = 64 * 1024
# No row of a value begins so: backslashes in values are doubled.
END_OF_ROWS = b"\n\\."
WORDS = ("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1")


class QueryError(MigrationError):
    """A server refused a statement, or was gone."""


@dataclass(frozen=True)
class DatabasePlace:
    """A database, as the tools of an instance reach it."""

    environment: dict[str, str] = field(repr=False)
    mounts: tuple[Mount, ...] = ()


def place(
    folder: str, user: str, password: str, database: str, mounts: tuple[Mount, ...]
) -> DatabasePlace:
    environment = {
        "PGHOST": folder,
        "PGPORT": "5432",
        "PGUSER": user,
        "PGDATABASE": database,
        "PGSSLMODE": "disable",
        "PGGSSENCMODE": "disable",
        "PGCONNECT_TIMEOUT": str(CONNECT_TIMEOUT_S),
        "PGAPPNAME": "menagerie-migration",
        "PGCLIENTENCODING": "UTF8",
        "LC_ALL": "C",
    }
    if password:
        environment["PGPASSWORD"] = password
    return DatabasePlace(environment, mounts)


class PsqlSession:
    """One connection. A statement that fails ends it."""

    def __init__(self, tool: ConfinedTool, *, is_restricted: bool) -> None:
        """One that is restricted obeys no command of psql's, whatever comes into a query."""
        self._tool = tool
        self._marked = "SELECT '%s';\n" if is_restricted else "\\echo %s\n"
        if is_restricted:
            tool.input.write(f"\\restrict {secrets.token_hex(16)}\n".encode())
        self._asking = asyncio.Lock()

    async def rows(self, query: str, bytes_max: int = ANSWER_BYTES_MAX) -> list[Any]:
        """What each row holds as JSON; the query has one column of it."""
        found = await self.lines(query, bytes_max)
        if sum(map(len, found)) <= BYTES_AT_ONCE:
            return _parsed(found)
        return await in_own_thread(_parsed, found)

    async def value(self, query: str) -> Any:
        """Of a query with one row of one column of JSON."""
        found = await self.rows(query, VALUE_BYTES_MAX)
        if len(found) != 1:
            raise QueryError("the server gave no answer")
        return found[0]

    async def run(self, *statements: str) -> None:
        for each in statements:
            await self.lines(each)

    async def lines(self, query: str, bytes_max: int = ANSWER_BYTES_MAX) -> list[bytes]:
        """What it wrote, line by line. Raises QueryError."""
        mark = secrets.token_hex(16)
        async with self._asking:
            try:
                # A comment at the end of the query must not hide what follows it.
                self._tool.input.write(f"{query}\n;\n{self._marked % mark}".encode())
                await self._tool.input.drain()
            except OSError:
                pass
            return await self._until(mark.encode(), bytes_max)

    async def fill(self, copy: str, blocks: AsyncIterator[bytes]) -> None:
        """`copy` reads what the blocks have, in the text format. Raises QueryError."""
        mark = secrets.token_hex(16)
        async with self._asking:
            try:
                self._tool.input.write(f"{copy};\n".encode())
                ends = b"\n"
                async for block in blocks:
                    if END_OF_ROWS in ends + block:
                        raise QueryError("the rows have the mark that ends them")
                    # Of blocks before this one too: each may have a single byte.
                    ends = (ends + block)[-len(END_OF_ROWS) :]
                    self._tool.input.write(block)
                    await self._tool.input.drain()
                self._tool.input.write(b"\\.\n" + (self._marked % mark).encode())
                await self._tool.input.drain()
            except OSError:
                pass
            await self._until(mark.encode(), VALUE_BYTES_MAX)

    async def _until(self, mark: bytes, left: int) -> list[bytes]:
        found: list[bytes] = []
        for number in itertools.count(1):
            if number % LINES_AT_ONCE == 0:
                # What has arrived already is read without waiting.
                await asyncio.sleep(0)
            try:
                line = await self._tool.output.readline()
            except ValueError as error:
                raise QueryError("the server answered with a line that is too long") from error
            if not line:
                await self._explain()
            if line.rstrip(b"\n") == mark:
                break
            left -= len(line)
            if left < 0 or number > ROWS_MAX:
                raise QueryError("the server answered with more than can be read")
            if line.strip():
                found.append(line)
        return found

    async def _explain(self) -> None:
        try:
            await self._tool.ended()
        except ConfinedToolError as error:
            raise QueryError(said(str(error))) from error
        raise QueryError("the connection was closed")

    async def end(self) -> None:
        await self._tool.end()


def _parsed(lines: list[bytes]) -> list[Any]:
    try:
        return [orjson.loads(each) for each in lines]
    except ValueError as error:
        raise QueryError("the server gave an answer that cannot be read") from error


@contextlib.asynccontextmanager
async def session(
    toolbox: Toolbox,
    program: str,
    where: DatabasePlace,
    words: Sequence[str] = (),
    *,
    is_restricted: bool = True,
) -> AsyncIterator[PsqlSession]:
    """Ends with the block. Raises QueryError, also by whatever is asked, if nobody lets it in."""
    pipe = asyncio.subprocess.PIPE
    argv = [program, *WORDS, *words]
    tool = await toolbox.start(
        argv, where.environment, stdin=pipe, stdout=pipe, mounts=where.mounts
    )
    made = PsqlSession(tool, is_restricted=is_restricted)
    try:
        yield made
    finally:
        await made.end()


def said(complaint: str) -> str:
    """The last error of a tool's complaints, without the program's name before it."""
    lines = [each.strip() for each in complaint.splitlines() if each.strip()]
    errors = [each for each in lines if "ERROR:" in each or "FATAL:" in each or "error:" in each]
    if not errors:
        return lines[-1] if lines else "it ended without a word"
    text = errors[-1]
    for mark in ("FATAL:", "ERROR:", "error:"):
        if mark in text:
            text = text.rpartition(mark)[2]
            break
    return text.strip()
