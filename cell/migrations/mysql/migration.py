"""A running MySQL or MariaDB as a source: dumped as of one moment, then run as a file is.

The tool asks on a connection that the cell has logged in on. When it has ended, the same
transaction still sees what it saw, and says what is in the rows.
"""

import asyncio
import os
import re
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import orjson

from cell.engines.contents import Contents
from cell.engines.mysql import examination
from cell.instances.verification import ScratchInstance
from cell.migrations import conduit as conduits
from cell.migrations import spool
from cell.migrations.conduit import CHUNK_BYTES, SOCKET, Conduit, folder_of
from cell.migrations.errors import MigrationError
from cell.migrations.mysql import digests, facts, preflight, session
from cell.migrations.mysql.digests import TableDigest
from cell.migrations.mysql.lent_session import LentSession
from cell.migrations.mysql.preflight import APP, BothSides
from cell.migrations.mysql.session import SourceSession
from cell.migrations.mysql_dumps import MySQLDumpMigration
from cell.migrations.record import MigrationProgress
from cell.migrations.report import PreflightReport, verification
from cell.runtime.confined_tools import ConfinedTool, ConfinedToolError, Toolbox
from cell.runtime.confinement import Mount
from cell.runtime.engine_folders import INSIDE
from cell.runtime.own_threads import in_own_thread

DIGESTS: Final = "digests"
# In a dump, each byte of a blob is two digits.
DUMP_TIMES_MAX: Final = 2
SPARE_BYTES: Final = 64 * 2**20
ROOM_EVERY_BYTES: Final = 16 * 2**20
SCHEMA_CHANGED: Final = "(1412)"
COMPLAINTS: Final = re.compile(r"mariadb-dump: (.*)")


@dataclass
class MySQLCopyMigration(MySQLDumpMigration):
    """As of the moment at which it asks. Nothing is left at the source."""

    conduit: Conduit
    _estimated_bytes: int = field(default=0, init=False)
    syncs = False

    @property
    def _silence_s(self) -> float:
        return self.work.settings.migration_silence_s

    def _session(self) -> AbstractAsyncContextManager[SourceSession]:
        return session.opened(self.conduit, self._silence_s)

    async def preflight(self) -> PreflightReport:
        instance = self.work.instance
        try:
            async with asyncio.timeout(self._silence_s), self._session() as source:
                found = await facts.gather(source)
                log = await facts.log_of(source, found) if self.syncs else None
        except TimeoutError as error:
            raise MigrationError(
                f"the source did not answer within {self._silence_s:.0f} s what the preflight asked"
            ) from error
        supported = await self.driver.supported(instance.site)
        compared = BothSides(found, supported, instance, self.conduit.source.database, log)
        made = await in_own_thread(preflight.report, compared)
        return PreflightReport(
            *(made.engine, made.version, made.size_bytes),
            (*made.findings, *await self._of_target()),
        )

    async def copy(self) -> None:
        within_s = self.work.settings.dump_timeout_s
        try:
            async with asyncio.timeout(within_s):
                await self._fetch()
        except TimeoutError as error:
            raise MigrationError(f"the source was not read within {within_s:.0f} s") from error
        await self._try()

    # The dump, and what the source says of its rows.

    async def _fetch(self) -> None:
        """Into the file that others are sent. Raises MigrationError."""
        self._found = None
        folder = spool.folder(self.work.instance)
        await asyncio.to_thread(folder.mkdir, mode=0o750, exist_ok=True)
        began = time.monotonic()
        async with self._session() as source:
            wanted = self.conduit.source.database
            chosen = (wanted,) if wanted else await facts.databases(source)
            if not chosen:
                raise MigrationError("the user of the source sees no database")
            self._estimated_bytes = await facts.size_bytes(source, chosen)
            # Once for what comes, and once for what is made of it.
            self.work.record.progress = MigrationProgress(0, 2 * self._estimated_bytes)
            await self._dump(source, chosen)
            within_s = self._silence_s + time.monotonic() - began
            await self._in_transaction(source)
            told = await digests.of_source(source, chosen, within_s)
        content = orjson.dumps([asdict(each) for each in told])
        await in_own_thread(write_synced, folder / DIGESTS, content)
        await in_own_thread(_sync, self._file)

    async def _in_transaction(self, source: SourceSession) -> None:
        """What else is asked of the moment that was dumped."""

    async def _dump(self, source: SourceSession, chosen: tuple[str, ...]) -> None:
        lent = LentSession(source)
        site, host = self.work.instance.site, self.host
        folder = folder_of(site)
        async with conduits.opened(self.conduit, folder, host.owner(site), lent.serve):
            inside = INSIDE / "source"
            seen = inside if host.hides_files else folder
            mount = Mount(folder.resolve(), inside, writable=False)
            tool = await self._started(chosen, f"{seen}/{SOCKET}", mount)
            try:
                with self._file.open("wb") as file:
                    await self._write(tool, file)
                await tool.ended()
            except ConfinedToolError as error:
                raise MigrationError(lent.failure or _said(tool, error)) from error
            finally:
                await tool.end()
        if not lent.has_quit:
            raise MigrationError(lent.failure or session.BROKE_OFF)

    async def _started(self, chosen: tuple[str, ...], socket: str, mount: Mount) -> ConfinedTool:
        instance = self.work.instance
        spec = instance.record.spec
        named = not self.conduit.source.database
        command = self.driver.source_dump_command(spec, socket, chosen, named=named)
        toolbox = Toolbox(self.host, instance.site, spec.size, tuple(command.mounts))
        pipe = asyncio.subprocess.PIPE
        return await toolbox.start(command.argv, command.environment, stdout=pipe, mounts=(mount,))

    async def _write(self, tool: ConfinedTool, file: BinaryIO) -> None:
        instance = self.work.instance
        most = DUMP_TIMES_MAX * instance.record.spec.size.storage_bytes + SPARE_BYTES
        came = looked_at = 0
        while block := await self._next(tool):
            came += len(block)
            if came > most:
                raise MigrationError(f"the dump of the source has more than {most} bytes")
            if came - looked_at >= ROOM_EVERY_BYTES:
                spool.check_disk(instance, 0)
                looked_at = came
            await in_own_thread(file.write, block)
            self._tell(min(came, self._estimated_bytes))
        self.work.record.total_bytes = came

    async def _next(self, tool: ConfinedTool) -> bytes:
        try:
            async with asyncio.timeout(self._silence_s):
                return await tool.output.read(CHUNK_BYTES)
        except TimeoutError as error:
            raise MigrationError(
                f"nothing came of the source for {self._silence_s:.0f} s; a lock may be held there"
            ) from error

    # What has come of it, against what the source said.

    async def _run(self, scratch: ScratchInstance) -> None:
        await super()._run(scratch)
        if not self.syncs:
            self.work.enter("verifying")
        expected = await in_own_thread(self._expected)
        aim = APP if self.conduit.source.database else None
        asked = {
            each.shown: digests.question(aim or each.database, each.name, each.columns)
            for each in expected
        }
        given = (scratch.site.socket, scratch.login, asked)
        found = await in_own_thread(examination.answers, *given)
        differing = digests.differences(expected, found)
        counted = sum(each.count for each in expected)
        self.work.record.verification = verification(len(expected), counted, differing)
        if differing:
            raise MigrationError(
                f"what was copied differs from the source in {len(differing)} tables, the first is "
                f"{differing[0].object}"
            )

    def _expected(self) -> list[TableDigest]:
        told = orjson.loads((spool.folder(self.work.instance) / DIGESTS).read_bytes())
        return [TableDigest.parse(each) for each in told]

    def _verified(self, holds: Contents) -> None:
        """As it was compared, by the rows themselves."""

    def _came(self, count: int) -> None:
        total = self.work.record.total_bytes or 1
        self._tell(self._estimated_bytes + self._estimated_bytes * count // total)

    def _tell(self, done: int) -> None:
        if (progress := self.work.record.progress) is not None:
            progress.bytes_done, progress.updated_at = done, time.time()


def _said(tool: ConfinedTool, error: ConfinedToolError) -> str:
    """Why the dump was not made, in the words of the source."""
    complaint = tool.complaint.decode(errors="replace")
    if SCHEMA_CHANGED in complaint:
        return "a table of the source was changed by ALTER TABLE or the like meanwhile; begin anew"
    found = COMPLAINTS.findall(complaint)
    return f"the source could not be dumped: {found[-1] if found else error}"


def write_synced(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    _sync(path)


def _sync(path: Path) -> None:
    """So that it is there where a migration goes on after the machine was switched off."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
