"""Dumps of mysqldump and mariadb-dump: run by the client on a scratch engine, as its owner."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from cell.engines.contents import Contents
from cell.engines.driver import EngineError
from cell.engines.mysql.driver import MariaDB
from cell.instances.verification import ScratchInstance
from cell.migrations import spool
from cell.migrations.files import NEW, FileMigration
from cell.migrations.report import PreflightFinding
from cell.runtime import engine_files
from cell.runtime.confined_tools import ConfinedToolError, Toolbox
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread

BLOCK_BYTES: Final = 1 << 20
# A row may be longer; of such a line only the beginning is looked at.
LINE_BYTES_MAX: Final = 1 << 16
TAIL_BYTES: Final = 4096
_HEAD: Final = re.compile(rb"-- (?:MySQL|MariaDB) dump ")
_VERSION: Final = re.compile(rb"^-- Server version\s+(\S{1,60})", re.MULTILINE)
_ROWS: Final = (b"INSERT ", b"REPLACE ", b"(")
_NAME: Final = rb"(?:`(?:[^`]|``)*`|'[^']*'|\w+)"
_DEFINER: Final = re.compile(rb"\bDEFINER\s*=\s*" + _NAME + rb"@" + _NAME, re.IGNORECASE)
# MySQL's collations since its version 8, by those of MariaDB after the same rules or newer ones.
_COLLATION: Final = re.compile(rb"\butf8mb4_0900_(ai_ci|as_ci|as_cs|bin)\b")
# What MySQL says of its own replication, which owners may not.
_OF_REPLICATION: Final = re.compile(
    rb"SET @@GLOBAL\.GTID_PURGED|SET @@SESSION\.SQL_LOG_BIN|SET @MYSQLDUMP_TEMP_LOG_BIN"
)


@dataclass
class MySQLDumpMigration(FileMigration):
    """What the dump makes is copied into the instance once all of it has been run."""

    host: Host
    driver: MariaDB

    def _recognize(self, head: bytes) -> str | None:
        if not _HEAD.search(head):
            return None
        found = _VERSION.search(head)
        return found[1].decode(errors="replace") if found else "not said"

    @property
    def _named(self) -> str:
        return "a dump of mysqldump or mariadb-dump, with its comments"

    async def _of_content(self) -> list[PreflightFinding]:
        """It is run while it is copied; whether it ends where it should is known before."""
        told = "the definers of views, routines, triggers and events become the instance's user"
        findings = [
            PreflightFinding("info", "format", "the file is SQL of mysqldump or mariadb-dump"),
            PreflightFinding("info", "definers", told),
        ]
        if b"-- Dump completed" not in await in_own_thread(_tail, self._file):
            told = "the file does not end with `-- Dump completed`: it may be cut off"
            remedy = "make the dump anew, and look at the exit status of the tool"
            findings.append(PreflightFinding("blocking", "not_readable", told, remedy))
        return findings

    async def _try(self) -> None:
        await self._prepared()

    async def _prepared(self) -> Path:
        """As it is made where it was not yet, or in a former cell."""
        folder = spool.folder(self.work.instance) / NEW
        if self._found is None:
            await in_own_thread(engine_files.remove, folder)
            await self.verifier.filled(self.work.instance, self._run, folder)
        return folder

    async def _holds(self) -> Contents:
        instance = self.work.instance
        return await self.driver.owned(instance.site, self.restores.login(instance))

    async def _run(self, scratch: ScratchInstance) -> None:
        """Raises EngineError with the first statement's error."""
        await run_sql(self.driver, self.host, scratch, self._blocks())
        await self.driver.refuse_passing(scratch.site)
        self._found = await self.driver.owned(scratch.site, scratch.login)

    async def _blocks(self) -> AsyncIterator[bytes]:
        with self._file.open("rb") as file:
            blocks = sql(file)
            while (block := await in_own_thread(next, blocks, None)) is not None:
                yield block
                self._came(file.tell())

    def _came(self, count: int) -> None:
        if (progress := self.work.record.progress) is not None:
            progress.bytes_done, progress.updated_at = count, time.time()


async def run_sql(
    driver: MariaDB, host: Host, scratch: ScratchInstance, blocks: AsyncIterator[bytes]
) -> None:
    """By the client, as the owner. Raises EngineError with the first statement's error."""
    site, spec = scratch.site, scratch.record.spec
    command = driver.client_command(site, spec, scratch.login)
    toolbox = Toolbox(host, site, spec.size, tuple(command.mounts))
    tool = await toolbox.start(command.argv, command.environment, stdin=asyncio.subprocess.PIPE)
    try:
        async for block in blocks:
            tool.input.write(block)
            await tool.input.drain()
        tool.input.close()
        await tool.ended()
    except (ConfinedToolError, OSError) as error:
        lines = tool.complaint.decode(errors="replace").splitlines()
        # Before it, the client repeats the statement.
        why = next((each for each in lines if each.startswith("ERROR ")), str(error))
        raise EngineError(f"the statements could not be run: {why}") from error
    finally:
        await tool.end()


def sql(file: BinaryIO) -> Iterator[bytes]:
    """By blocks: what an owner may run, and MariaDB knows; rows as they are."""
    filling, begins, skips = bytearray(), True, False
    while line := file.readline(LINE_BYTES_MAX):
        ends = line.endswith(b"\n")
        if begins and not line.startswith(_ROWS):
            skips = skips or _OF_REPLICATION.match(line) is not None
            filling += b"\n" if skips else _adapted(line)
            skips = skips and not line.rstrip().endswith(b";")
        else:
            filling += line
        begins = ends
        if len(filling) >= BLOCK_BYTES:
            yield bytes(filling)
            filling.clear()
    yield bytes(filling)


def _adapted(line: bytes) -> bytes:
    line = _DEFINER.sub(b"DEFINER=CURRENT_USER", line)
    return _COLLATION.sub(_known_collation, line)


def known_collation(name: str) -> str:
    """What it becomes in the instance."""
    return _COLLATION.sub(_known_collation, name.encode()).decode()


def _known_collation(found: re.Match[bytes]) -> bytes:
    return b"utf8mb4_bin" if found[1] == b"bin" else b"utf8mb4_uca1400_" + found[1]


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return file.read(TAIL_BYTES)
