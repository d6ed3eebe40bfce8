"""A migration into PostgreSQL from its first look at the source to the new database."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cell.migrations import spool
from cell.migrations.conduit import Conduit
from cell.migrations.errors import MigrationError
from cell.migrations.postgres import comparing, preflight, source, syncing, uploads
from cell.migrations.postgres.copying import SourceCopy
from cell.migrations.postgres.source import REPEATABLE, PostgresSource, snapshot_name
from cell.migrations.postgres.tables import SourceTable, tables
from cell.migrations.postgres.target import PostgresTarget
from cell.migrations.record import Migration, MigrationProgress
from cell.migrations.report import COUNT_MAX, SECONDS_MAX, PreflightFinding, PreflightReport
from cell.migrations.source_uri import SourceUri
from cell.migrations.work import MigrationWork
from cell.runtime.confined_tools import ConfinedToolError
from cell.runtime.host import Host
from cell.runtime.own_threads import in_own_thread

JOBS_MIN, JOBS_MAX = 2, 4
PROGRESS_EVERY_S = 1.0
SNAPSHOT = "SELECT to_json(pg_catalog.pg_export_snapshot())"


class PostgresMigration:
    """What every way of filling an instance has in common: the new database, and its swap."""

    def __init__(self, work: MigrationWork, target: PostgresTarget) -> None:
        self.work = work
        self.target = target
        self.jobs = min(JOBS_MAX, max(JOBS_MIN, math.ceil(target.toolbox.size.vcpu)))

    @property
    def record(self) -> Migration:
        return self.work.record

    @property
    def folder(self) -> Path:
        return spool.folder(self.work.instance)

    async def create(self) -> None:
        """The new database, in place of what an attempt before left of one."""
        self.record.made["database"] = self.target.database
        self.work.save()
        await self.target.create()

    async def swap(self) -> None:
        """What has been verified becomes the owner's. Done again where it was broken off."""
        self.record.made["swap"] = "begun"
        self.record.reason = None
        self.work.save()
        if await self.target.has(self.target.database):
            await self.target.forget_subscriptions()
            await self.target.swap()
        # From here on the data is there, whatever becomes of what was there before.
        try:
            if await self.target.drop_former():
                self.record.reason = (
                    "objects were made in the former database meanwhile; it is kept as "
                    f"{self.target.former}"
                )
        except (MigrationError, ConfinedToolError) as error:
            self.record.reason = (
                f"the former database could not be removed, and is kept as {self.target.former}: "
                f"{error}"
            )
        self.record.made.pop("database", None)
        self.record.made.pop("swap", None)
        self.work.save()

    async def drop(self) -> None:
        """What a migration that ends otherwise has made in the instance."""
        if "database" in self.record.made:
            await self.target.drop()
            await self.target.give_back()
            del self.record.made["database"]
            self.work.save()

    def verified(self, found: dict[str, Any]) -> None:
        """Raises MigrationError where source and instance differ."""
        self.record.verification = found
        if self.record.progress is not None:
            self.record.progress.rows_done = found["rows_compared"]
        self.work.save()
        if differences := found["differences"]:
            first = differences[0]
            raise MigrationError(
                f"the instance has not what the source has: {len(differences)} differences, "
                f"the first in {first['object']}"
            )


class UploadMigration(PostgresMigration):
    """Of a file of pg_dump."""

    async def preflight(self) -> PreflightReport:
        return await uploads.report(self.target, self.folder, self.record.format)

    async def copy(self) -> None:
        progress = self.record.progress = MigrationProgress(0, self.record.total_bytes)

        def passed(count: int) -> None:
            progress.bytes_done, progress.updated_at = count, time.time()

        await self.create()
        restored = await uploads.restore(self.target, self.folder, self.jobs, passed)
        self.work.enter("verifying")
        self.verified(await comparing.counted(self.target, restored))
        verification = self.record.verification or {}
        progress.tables_done = progress.tables_total = verification["tables_compared"]
        passed(self.record.total_bytes or 0)
        await self.target.analyze()

    async def leave(self) -> None:
        """There is nothing of it at any source."""


class ConnectionMigration(PostgresMigration):
    """Of a running server, as of one moment."""

    def __init__(
        self, work: MigrationWork, target: PostgresTarget, host: Host, uri: SourceUri
    ) -> None:
        super().__init__(work, target)
        self.conduit = Conduit(uri, tuple(work.settings.migration_networks))
        self._host = host

    @contextlib.asynccontextmanager
    async def source(self) -> AsyncIterator[PostgresSource]:
        await asyncio.to_thread(self.folder.mkdir, exist_ok=True)
        spool.lend(self.folder, self._host.owner(self.work.instance.site))
        async with source.opened(self._host, self.conduit, self.target) as made:
            yield made

    async def preflight(self) -> PreflightReport:
        async with self.source() as made, made.session() as asked:
            facts = await preflight.gather(asked, self.target)
            syncs = self.record.mode == "copy_and_sync"
            making = partial(preflight.report, facts, self.target, syncs=syncs)
            found = await in_own_thread(making)
            return replace(found, findings=(*found.findings, *await self.further(made)))

    async def further(self, there: PostgresSource) -> Sequence[PreflightFinding]:  # noqa: ARG002 - of a sync
        """What else is to be known before it begins."""
        return ()

    async def copy(self) -> None:
        await self.create()
        async with self.source() as made, made.session() as holder:
            await holder.run(REPEATABLE)
            snapshot = snapshot_name(await holder.value(SNAPSHOT))
            found = await tables(holder)
            await self.fill(made, snapshot, found)
            self.work.enter("verifying")
            # One that has no count of its own is compared in the same snapshot.
            opened = partial(made.in_snapshot, snapshot)
            self.verified(await self.compared(opened, found))
        await self.target.analyze()

    async def compared(
        self, opened: comparing.Opened, found: Sequence[SourceTable]
    ) -> dict[str, Any]:
        return await comparing.compared(
            *(opened, self.target, found),
            jobs=self.jobs,
            silence_s=self.work.settings.migration_silence_s,
        )

    async def fill(self, made: PostgresSource, snapshot: str, found: Sequence[SourceTable]) -> None:
        """The new database with all that the snapshot sees."""
        counted = CopyProgress(self.work, self.conduit, found)
        copy = SourceCopy(
            *(made, self.target, snapshot, self.folder, counted.done),
            jobs=self.jobs,
            silence_s=self.work.settings.migration_silence_s,
        )
        await copy.schema()
        counting = asyncio.create_task(counted.follow())
        try:
            await copy.rows(found)
        finally:
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)
        counted.tell()
        await copy.large_objects()
        await copy.indexes()
        await copy.finish()

    async def leave(self) -> None:
        """Removes what was made at the source."""
        made = self.record.made
        if not {"slot", "publication"} & made.keys():
            return
        async with self.source() as there:
            await syncing.unpublish(there, made)
        for name in ("slot", "publication"):
            made.pop(name, None)
        self.work.save()


class CopyProgress:
    """How far the rows are: by the bytes that came through the conduit, and the tables done."""

    def __init__(
        self, work: MigrationWork, conduit: Conduit, expected: Sequence[SourceTable]
    ) -> None:
        self._work = work
        self._conduit = conduit
        self._began = time.monotonic()
        self._began_at_bytes = conduit.received_bytes
        total = sum(each.size_bytes for each in expected)
        self._progress = MigrationProgress(0, total, 0, 0, len(expected))
        work.record.progress = self._progress

    def done(self, copied: Sequence[SourceTable]) -> None:
        progress = self._progress
        progress.tables_done = (progress.tables_done or 0) + len(copied)
        progress.rows_done = (progress.rows_done or 0) + sum(each.rows for each in copied)
        self.tell()

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_EVERY_S)
            self.tell()

    def tell(self) -> None:
        progress, total = self._progress, self._progress.bytes_total or 0
        came = self._conduit.received_bytes - self._began_at_bytes
        is_done = progress.tables_done == progress.tables_total
        # Rows are texts on the way, which are longer or shorter than they are in tables.
        progress.bytes_done = total if is_done else min(total, came)
        took_s = time.monotonic() - self._began
        if is_done:
            progress.estimated_s = 0.0
        elif came and took_s > PROGRESS_EVERY_S:
            estimated_s = took_s * max(0, min(total, COUNT_MAX) - came) / came
            progress.estimated_s = round(min(estimated_s, SECONDS_MAX), 1)
        progress.updated_at = time.time()
