"""Files that become tables of a scratch engine first, and then all data of the instance."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cell.engines.contents import Contents
from cell.engines.driver import EngineError
from cell.instances.verification import ScratchInstance
from cell.migrations import spool
from cell.migrations.errors import MigrationError
from cell.migrations.files import NEW, FileMigration
from cell.migrations.record import MigrationProgress
from cell.migrations.report import PreflightFinding, PreflightReport
from cell.migrations.table_files.reader import FileReader
from cell.migrations.table_files.tables import FileTable, TableRules
from cell.migrations.table_files.unpacking import FileTables, Unpacking
from cell.runtime import engine_files
from cell.runtime.confined_tools import Toolbox
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread

Sent = tuple[int, str]
"""How many rows of a file there were, and the digest of them."""


@dataclass
class ScratchTables(FileMigration):
    """The instance must be empty: its data is replaced as a whole."""

    host: Host
    _files: FileTables | None = field(default=None, init=False)

    async def preflight(self) -> PreflightReport:
        found = self._files = await self._unpacked()
        findings = [*found.findings, *await self._of_target(), *self._of_types(found.tables)]
        return PreflightReport(None, None, found.size_bytes, tuple(findings))

    async def copy(self) -> None:
        if self._files is None:
            # By a cell that was started anew.
            self._files = await self._unpacked()
            if blocking := [each for each in self._files.findings if each.severity == "blocking"]:
                raise MigrationError(blocking[0].message)
        self.work.record.progress = MigrationProgress(
            bytes_done=0,
            bytes_total=self._files.size_bytes,
            rows_done=0,
            tables_done=0,
            tables_total=len(self.tables),
        )
        await self._prepared()

    @property
    def tables(self) -> tuple[FileTable, ...]:
        assert self._files is not None
        return self._files.tables

    async def _unpacked(self) -> FileTables:
        instance = self.work.instance
        toolbox = Toolbox(self.host, instance.site, instance.record.spec.size, ())
        return await Unpacking(instance, toolbox, self.rules, self.work.record.table).found()

    async def _prepared(self) -> Path:
        """As it is made where it was not yet, or in a former cell."""
        folder = spool.folder(self.work.instance) / NEW
        if self._files is None:
            self._files = await self._unpacked()
        if self._found is None:
            await in_own_thread(engine_files.remove, folder)
            self._found = await self._made(folder)
        return folder

    def reader(self, scratch: ScratchInstance) -> FileReader:
        """In the sandbox of the scratch engine."""
        toolbox = Toolbox(self.host, scratch.site, scratch.record.spec.size, ())
        return FileReader(toolbox, spool.folder(self.work.instance))

    def compare(self, table: FileTable, sent: Sent, there: Sent) -> None:
        """Raises EngineError where the table is not what the file has."""
        if sent != there or sent[0] != table.rows:
            raise EngineError(
                f"the table {table.shown} is not what its file has: {table.rows} rows were found, "
                f"{sent[0]} sent, {there[0]} are there"
            )

    def done(self, table: FileTable) -> None:
        if (progress := self.work.record.progress) is not None:
            progress.tables_done = (progress.tables_done or 0) + 1
            progress.rows_done = (progress.rows_done or 0) + table.rows
            progress.bytes_done = (progress.bytes_done or 0) + table.size_bytes
            progress.updated_at = time.time()

    def _verified(self, holds: Contents) -> None:
        super()._verified(holds)
        if (found := self.work.record.verification) is not None:
            found["notes"] = self._notes()

    # What differs between engines.

    @property
    def rules(self) -> TableRules:
        raise NotImplementedError

    def _of_types(self, tables: tuple[FileTable, ...]) -> Iterator[PreflightFinding]:  # noqa: ARG002 - of engines that lack some
        """What columns become that the engine has no like of."""
        return iter(())

    def _notes(self) -> list[str]:
        """What was not compared."""
        return []

    async def _made(self, folder: Path) -> Contents:
        """A copy of an engine's data in the folder that has the tables, all of them compared."""
        raise NotImplementedError
