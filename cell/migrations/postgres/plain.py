"""Plain SQL of pg_dump: run by psql, which is told to obey nothing but SQL.

Dumps name owners and grant rights to roles that the instance does not have. Such statements fail
and are left out; the first other one that fails ends the restore.
"""

import asyncio
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from cell.migrations.errors import MigrationError
from cell.migrations.postgres import psql
from cell.migrations.postgres.row_counts import RowCounts
from cell.migrations.postgres.target import PostgresTarget
from cell.runtime.confined_tools import ConfinedToolError
from cell.runtime.own_threads import in_own_thread

BLOCK_BYTES = 1 << 20
ENDS_BYTES = 64 * 1024
# What a dump may ask for and the instance leaves out.
PASSED_OVER: Final = re.compile(
    r"(?:GRANT |REVOKE |ALTER DEFAULT PRIVILEGES |SET |"
    r"COMMENT ON EXTENSION |CREATE SCHEMA (?:IF NOT EXISTS )?public\b|COMMENT ON SCHEMA public|"
    r"SELECT pg_catalog\.set_config\(|SECURITY LABEL |CREATE PUBLICATION |ALTER PUBLICATION )",
    re.IGNORECASE,
)
_SAID = re.compile(r"^(?:psql:\S*: )?(ERROR|FATAL|PANIC|STATEMENT):(.*)$")
_KEY = re.compile(rb"^\\restrict ([A-Za-z0-9]+)\r?\n", re.MULTILINE)


class StatementErrors:
    """What psql says of each error: the message, then the statement."""

    def __init__(self) -> None:
        self.passed_over = 0
        self.fatal: str | None = None
        self._message: str | None = None

    def hear(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        if found := _SAID.match(text):
            kind, rest = found.groups()
            # Without a statement after it, nothing tells that an error may be passed over.
            self._settle(rest if kind == "STATEMENT" else "")
            if kind != "STATEMENT":
                self._message = rest.strip()
        elif "invalid command" in text or "restricted" in text:
            self.fatal = self.fatal or "the file has commands of psql, and not only SQL"

    def settle(self) -> None:
        self._settle("")

    def _settle(self, statement: str) -> None:
        message, self._message = self._message, None
        if message is None:
            return
        if _is_passed_over(statement):
            self.passed_over += 1
        else:
            self.fatal = self.fatal or message


def _is_passed_over(statement: str) -> bool:
    """In time that grows with its length and no faster: it is somebody else's."""
    text = statement.lstrip()
    is_owners = text[:6].upper() == "ALTER " and " OWNER TO " in text.upper()
    return is_owners or PASSED_OVER.match(text) is not None


async def restore(
    target: PostgresTarget, path: Path, passed: Callable[[int], None]
) -> tuple[dict[str, int], int]:
    """How many rows came for each table, and how many statements were left out.

    `passed` is told how much of the file psql has taken. Raises MigrationError.
    """
    errors, counts = StatementErrors(), RowCounts()
    words = ["-X", "-q", "-v", "ON_ERROR_STOP=0", "-v", "ECHO=errors", "-v", "SHOW_CONTEXT=never"]
    where = target.place()
    tool = await target.toolbox.start(
        [target.program("psql"), *words],
        where.environment,
        stdin=asyncio.subprocess.PIPE,
        heard=errors.hear,
    )
    try:
        with path.open("rb") as file:
            blocks = only_sql(file, secrets.token_hex(16).encode())
            while (block := await in_own_thread(next, blocks, None)) is not None:
                await in_own_thread(counts.feed, block)
                tool.input.write(block)
                await tool.input.drain()
                passed(file.tell())
                if errors.fatal is not None:
                    break
        tool.input.close()
        if errors.fatal is None:
            await tool.ended()
            errors.settle()
    except (ConfinedToolError, OSError) as error:
        errors.settle()
        why = errors.fatal or psql.said(str(error))
        raise MigrationError(f"the restore failed: {why}") from error
    finally:
        await tool.end()
    if errors.fatal is not None:
        raise MigrationError(f"the restore failed: {errors.fatal}")
    return counts.rows, errors.passed_over


def only_sql(file: IO[bytes], key: bytes) -> Iterator[bytes]:
    """The file after a line that has psql obey no command of its own from then on.

    Newer dumps begin with such a line themselves, and end with one that lifts it: without them.
    """
    yield b"\\restrict " + key + b"\n"
    head = file.read(ENDS_BYTES)
    lifts: bytes | None = None
    if (found := _KEY.search(head)) and b"\nCOPY " not in head[: found.start()]:
        lifts = b"\\unrestrict " + found[1]
        head = head[: found.start()] + head[found.end() :]
    held = head
    while block := file.read(BLOCK_BYTES):
        held += block
        if len(held) > ENDS_BYTES:
            yield held[:-ENDS_BYTES]
            held = held[-ENDS_BYTES:]
    if lifts is not None and (begins := held.rfind(b"\n" + lifts)) >= 0:
        held = held[: begins + 1] + held[begins + 1 + len(lifts) :].lstrip(b"\r\n")
    yield held + b"\n\\unrestrict " + key + b"\n"
