"""A running Redis or Valkey as a source: what it sends a new replica is all its data, as an RDB."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from cell.migrations import spool
from cell.migrations.conduit import Conduit
from cell.migrations.errors import MigrationError
from cell.migrations.files import NativeFileMigration
from cell.migrations.record import MigrationProgress
from cell.migrations.redis import facts
from cell.migrations.redis.facts import RedisFacts
from cell.migrations.redis.source import (
    BROKEN,
    MARK_BYTES,
    NOT_ONE,
    ServerSource,
    SourceRefusedError,
    count_of,
    logged_in,
    why,
)
from cell.migrations.report import PreflightFinding, PreflightReport
from cell.migrations.work import MigrationWork
from cell.runtime.own_threads import in_own_thread

BLOCK_BYTES: Final = 1 << 20


@contextlib.asynccontextmanager
async def explained(silence_s: float) -> AsyncIterator[None]:
    """What ends a connection, as a MigrationError."""
    try:
        yield
    except TimeoutError as error:
        raise MigrationError(
            f"the source said nothing for {silence_s:.0f} s, or did not end in time"
        ) from error
    except BROKEN as error:
        raise MigrationError(f"the source broke off: {why(error)}") from error


async def facts_of(source: ServerSource, *section: str) -> RedisFacts:
    """All at one moment, or those of one section. Raises SourceRefusedError."""
    told = await source.value("INFO", *section)
    return RedisFacts.parse(told if isinstance(told, bytes) else b"")


class Fetching:
    """All data of a source into a file, within what the instance has room for."""

    def __init__(self, work: MigrationWork) -> None:
        self._work = work

    async def receive(self, source: ServerSource, path: Path) -> int:
        """Answers how many bytes there were."""
        length = await source.content()
        if not length.startswith(b"$"):
            raise MigrationError(NOT_ONE)
        mark = length[5:] if length.startswith(b"$EOF:") else b""
        if mark and len(mark) != MARK_BYTES:
            raise MigrationError(NOT_ONE)
        most = self._work.instance.record.spec.size.storage_bytes
        wanted = None if mark else count_of(length[1:])
        if (wanted or 0) > most:
            raise MigrationError(f"the source has {wanted} bytes; the storage is {most}")
        with path.open("wb") as file:
            return await self._fill(source, file, wanted, mark, most)

    async def _fill(
        self, source: ServerSource, file: BinaryIO, wanted: int | None, mark: bytes, most: int
    ) -> int:
        progress = self._work.record.progress = MigrationProgress(0, wanted)
        came, tail = 0, b""
        while wanted is None or came < wanted:
            left = BLOCK_BYTES if wanted is None else min(BLOCK_BYTES, wanted - came)
            block = await source.block(left)
            came += len(block)
            if came > most + MARK_BYTES:
                raise MigrationError(f"the source sent more than the storage, {most} bytes")
            spool.check_disk(self._work.instance, (wanted or came) - came)
            await in_own_thread(file.write, block)
            progress.bytes_done, progress.updated_at = came, time.time()
            tail = (tail + block)[-MARK_BYTES:]
            if mark and tail == mark:
                file.truncate(came - MARK_BYTES)
                came -= MARK_BYTES
                break
        self._work.record.total_bytes = progress.bytes_total = progress.bytes_done = came
        return came


@dataclass
class RedisCopyMigration(NativeFileMigration):
    """As of the moment at which it asks. Nothing is left at the source."""

    conduit: Conduit
    syncs = False

    @property
    def silence_s(self) -> float:
        return self.work.settings.migration_silence_s

    async def preflight(self) -> PreflightReport:
        found = await self._of_source()
        if any(each.severity == "blocking" for each in found):
            engine = self.work.instance.driver.engine
            return PreflightReport(engine, None, None, tuple(found))
        await self._fetch()
        report = await super().preflight()
        return PreflightReport(
            report.engine, report.version, report.size_bytes, (*found, *report.findings)
        )

    async def copy(self) -> None:
        if not self._file.exists():
            await self._fetch()
        await super().copy()

    async def _of_source(self) -> list[PreflightFinding]:
        async with explained(self.silence_s), logged_in(self.conduit, self.silence_s) as source:
            try:
                found = await facts_of(source)
            except SourceRefusedError as error:
                told = f"what would go wrong is seen only when it does: {error}"
                if not self.syncs:
                    return [PreflightFinding("info", "no_info", told)]
                told = f"the changes of the source cannot be followed: {error}"
                return [PreflightFinding("blocking", "no_info", told, "give the user +info")]
        spec = self.work.instance.record.spec
        return list(facts.findings(found, spec, syncs=self.syncs))

    async def _fetch(self) -> None:
        """Into the file that others are sent. Raises MigrationError."""
        self._found = None
        await self._make_folder()
        async with (
            explained(self.silence_s),
            asyncio.timeout(self.work.settings.upgrade_timeout_s),
            logged_in(self.conduit, self.silence_s) as source,
        ):
            await source.asked_for_data()
            await Fetching(self.work).receive(source, self._file)

    async def _make_folder(self) -> None:
        await asyncio.to_thread(spool.folder(self.work.instance).mkdir, mode=0o750, exist_ok=True)
