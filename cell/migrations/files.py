"""A file of the engine's own kind becomes the data of an instance: an RDB, a DuckDB database."""

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cell.engines.driver import BeginsWithFile, Contents, EngineError
from cell.instances.reasons import for_owner
from cell.instances.restores import Restores
from cell.instances.verification import Verifier
from cell.migrations import spool
from cell.migrations.errors import MigrationError
from cell.migrations.record import MigrationProgress
from cell.migrations.report import (
    PreflightFinding,
    PreflightReport,
    sizes,
    verification,
)
from cell.migrations.work import MigrationWork
from cell.runtime import budget, engine_files
from cell.runtime.own_threads import in_own_thread

HEAD_BYTES = 1024
TRIED = "tried"
NEW = "new"
NOTHING = Contents.of([]).digest


@dataclass
class FileMigration:
    """Tried on a scratch engine: the instance is stopped only for what has been read there."""

    work: MigrationWork
    driver: BeginsWithFile
    verifier: Verifier
    restores: Restores
    _found: Contents | None = field(default=None, init=False)

    @property
    def _file(self) -> Path:
        return spool.folder(self.work.instance) / spool.FILE

    async def preflight(self) -> PreflightReport:
        size_bytes = self._file.stat().st_size
        version = self.driver.recognize(await in_own_thread(_head, self._file))
        engine = self.work.instance.driver.engine
        findings = [*sizes(size_bytes, self.work.instance), *await self._of_target()]
        if version is None:
            told = f"the file is not one that {engine} begins with ({self.driver.file_format})"
            findings.append(PreflightFinding("blocking", "not_readable", told))
        elif not any(each.severity == "blocking" for each in findings):
            findings += await self._of_content()
        return PreflightReport(version and engine, version, size_bytes, tuple(findings))

    async def _of_target(self) -> list[PreflightFinding]:
        if (await self._holds()).digest == NOTHING:
            return []
        told = "the instance has data already"
        remedy = "remove it, or migrate into a new instance"
        return [PreflightFinding("blocking", "target_not_empty", told, remedy)]

    async def _of_content(self) -> list[PreflightFinding]:
        try:
            found = await self._try()
        except EngineError as error:
            why = for_owner(str(error))
            told = f"an engine of the instance's version and size does not start with it: {why}"
            return [PreflightFinding("blocking", "not_readable", told)]
        if found.digest == NOTHING:
            return [PreflightFinding("warning", "empty", "there is no data in the file")]
        return [PreflightFinding("info", "format", "an engine has read the file all through")]

    async def copy(self) -> None:
        """Of a file that has arrived all is there already: it is only tried, if it was not yet."""
        self.work.record.progress = MigrationProgress(0, self.work.record.total_bytes)
        if self._found is None:
            await self._try()

    async def swap(self) -> None:
        """What has been tried becomes the owner's. Done again where it was broken off."""
        record, instance = self.work.record, self.work.instance
        is_again = record.made.get("swap") is not None
        record.made["swap"] = "begun"
        self.work.save()
        holds = await self._holds()
        if holds.digest == NOTHING:
            folder = await self._prepared(NEW, trusted=True)
            try:
                await self.restores.put(instance, folder)
            finally:
                await in_own_thread(engine_files.remove, folder)
            holds = await self._holds()
        elif not is_again:
            raise MigrationError("data was written into the instance meanwhile; it was left as is")
        if self._found is not None and holds.digest != self._found.digest and not is_again:
            raise MigrationError("the instance has not what the file has")
        record.verification = verification(holds.tables, holds.rows or 0, [])
        self._passed(holds)
        record.made.pop("swap", None)
        self.work.save()

    def _passed(self, holds: Contents) -> None:
        if (progress := self.work.record.progress) is not None:
            progress.bytes_done, progress.updated_at = progress.bytes_total, time.time()
            progress.rows_done = holds.rows
            progress.tables_done = progress.tables_total = holds.tables

    async def drop(self) -> None:
        """Nothing of it is in the instance before the swap, and after it all is the owner's."""
        self.work.record.made.pop("swap", None)

    async def leave(self) -> None:
        """There is nothing of it at any source."""

    async def _holds(self) -> Contents:
        instance = self.work.instance
        login = self.restores.login(instance)
        return await instance.driver.examine(instance.site, login)

    async def _try(self) -> Contents:
        folder = await self._prepared(TRIED, trusted=False)
        try:
            self._found = await self.verifier.contents_of(self.work.instance, folder)
        finally:
            await in_own_thread(engine_files.remove, folder)
        return self._found

    async def _prepared(self, name: str, *, trusted: bool) -> Path:
        """A folder with a copy of the file, as a snapshot has it."""
        folder = spool.folder(self.work.instance) / name
        copied = folder.with_name("copied")
        for each in (folder, copied):
            await in_own_thread(engine_files.remove, each)
        with budget.limit(self.work.instance.ceiling_bytes):
            await in_own_thread(engine_files.copy_file, self._file, copied)
        prepare = partial(self.driver.prepare_file, copied, folder, trusted=trusted)
        await in_own_thread(prepare)
        return folder


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)
