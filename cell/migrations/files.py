"""Files that become all data of an instance: tried on a scratch engine, and then put in place."""

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cell.engines.contents import Contents
from cell.engines.driver import BeginsWithFile, EngineError
from cell.instances.reasons import for_owner
from cell.instances.restores import Restores
from cell.instances.verification import Verifier
from cell.migrations import spool
from cell.migrations.errors import MigrationError
from cell.migrations.record import MigrationProgress
from cell.migrations.report import PreflightFinding, PreflightReport, sizes, verification
from cell.migrations.work import MigrationWork
from cell.runtime import budget, engine_files
from cell.runtime.own_threads import in_own_thread

HEAD_BYTES = 1024
TRIED, NEW = "tried", "new"
NOTHING = Contents.of([]).digest
WRITTEN = "data was written into the instance meanwhile; it was left as is"
FORMATS = {"rdb": "an RDB file", "duckdb": "a database file of DuckDB"}


@dataclass
class FileMigration:
    """The instance is stopped only for what an engine of its version and size has read."""

    work: MigrationWork
    verifier: Verifier
    restores: Restores
    _found: Contents | None = field(default=None, init=False)

    @property
    def _file(self) -> Path:
        return spool.folder(self.work.instance) / spool.FILE

    async def preflight(self) -> PreflightReport:
        size_bytes = self._file.stat().st_size
        version = self._recognize(await in_own_thread(_head, self._file))
        engine = self.work.instance.driver.engine
        findings = [*sizes(size_bytes, self.work.instance), *await self._of_target()]
        if version is None:
            told = f"the file is not one that {engine} takes: {self._named}"
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

    async def copy(self) -> None:
        self.work.record.progress = MigrationProgress(0, self.work.record.total_bytes)
        await self._try()

    async def swap(self) -> None:
        """What has been tried becomes the owner's. Done again where it was broken off."""
        record, instance = self.work.record, self.work.instance
        is_again = record.made.get("swap") is not None
        record.made["swap"] = "begun"
        self.work.save()
        holds = await self._holds()
        if holds.digest == NOTHING:
            folder = await self._prepared()
            try:
                await self.restores.put(instance, folder, self._refuse_written)
            finally:
                await in_own_thread(engine_files.remove, folder)
            holds = await self._holds()
        elif not is_again:
            raise MigrationError(WRITTEN)
        if not is_again:
            self._compare(holds)
        self._verified(holds)
        self._passed(holds)
        record.made.pop("swap", None)
        self.work.save()

    async def _refuse_written(self) -> None:
        if (await self._holds()).digest != NOTHING:
            raise MigrationError(WRITTEN)

    def _compare(self, holds: Contents) -> None:
        """With what was tried; raises MigrationError."""
        if self._found is not None and holds.lasting != self._found.lasting:
            raise MigrationError("the instance does not have what the file has")

    def _verified(self, holds: Contents) -> None:
        self.work.record.verification = verification(holds.tables, holds.rows or 0, [])

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
        """What its owner has in the instance."""
        instance = self.work.instance
        login = self.restores.login(instance)
        return await instance.driver.examine(instance.site, login)

    # What differs between kinds of files.

    @property
    def _named(self) -> str:
        """The files that it takes, for people."""
        raise NotImplementedError

    def _recognize(self, head: bytes) -> str | None:
        """What made it, as far as it says; None if it is another file."""
        raise NotImplementedError

    async def _of_content(self) -> list[PreflightFinding]:
        raise NotImplementedError

    async def _try(self) -> None:
        """Raises EngineError where no engine of the instance's version and size takes it."""
        raise NotImplementedError

    async def _prepared(self) -> Path:
        """A new folder with the data, in the form of a snapshot."""
        raise NotImplementedError


@dataclass
class NativeFileMigration(FileMigration):
    """Of the engine's own kind: an RDB, a DuckDB database."""

    driver: BeginsWithFile

    @property
    def _named(self) -> str:
        return FORMATS[self.driver.file_format]

    def _recognize(self, head: bytes) -> str | None:
        return self.driver.recognize(head)

    async def _of_content(self) -> list[PreflightFinding]:
        try:
            await self._try()
        except EngineError as error:
            why = for_owner(str(error))
            told = f"an engine of the instance's version and size does not start with it: {why}"
            return [PreflightFinding("blocking", "not_readable", told)]
        if self._found is not None and self._found.digest == NOTHING:
            return [PreflightFinding("warning", "empty", "there is no data in the file")]
        return [PreflightFinding("info", "format", "an engine has read the file all through")]

    async def _try(self) -> None:
        if self._found is not None:
            return
        folder = await self._made(TRIED, trusted=False)
        try:
            self._found = await self.verifier.contents_of(self.work.instance, folder)
        finally:
            await in_own_thread(engine_files.remove, folder)

    async def _prepared(self) -> Path:
        return await self._made(NEW, trusted=True)

    async def _made(self, name: str, *, trusted: bool) -> Path:
        folder = spool.folder(self.work.instance) / name
        copied = folder.with_name("copied")
        for each in (folder, copied):
            await in_own_thread(engine_files.remove, each)
        with budget.limit(self.work.instance.ceiling_bytes):
            await in_own_thread(engine_files.copy_file, self._file, copied)
        await in_own_thread(partial(self.driver.prepare_file, copied, folder, trusted=trusted))
        return folder


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)
