"""Migrations at work: each in a task of its own, from the state that its record says to its end."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog

from cell.engines.driver import EngineError
from cell.instances.hosted import HostedInstance
from cell.instances.pools import owner_of
from cell.instances.reasons import for_owner
from cell.instances.restores import Restores
from cell.instances.supervisor import Supervisor
from cell.instances.verification import Verifier
from cell.migrations import spool
from cell.migrations.errors import MigrationError, NotCaughtUpError
from cell.migrations.kinds import READS_ALL, Engine, Following, MigrationKinds
from cell.migrations.mysql.sync import MySQLSyncMigration
from cell.migrations.postgres.reverse_sync import MADE
from cell.migrations.postgres.table_files import TableFilesMigration
from cell.migrations.record import Migration, MigrationRecords, Status
from cell.migrations.redis.sync import RedisSyncMigration
from cell.migrations.report import PreflightReport, bounded
from cell.migrations.reverse_syncs import ReverseSyncs
from cell.runtime.confined_tools import ConfinedToolError
from cell.runtime.own_threads import in_own_thread
from cell.runtime.process import Process
from cell.settings import CellSettings
from specserver import Unavailable

log = structlog.get_logger("cell.migrations")

AWAKE_S = 30.0
LOOK_EVERY_S = 0.2
RUNNING_WITHIN_S = 900.0
AGAIN_S = 2.0
END_AGAIN_S = 10.0
STOP_AGAIN_S = 30.0
STOPS_MAX = 5
ENGINES_MAX = 20
FOLLOWS = ("syncing", "cutting_over", "verifying")
FULL = "the storage of the instance was full; choose more storage or a larger size (resize)"
FAILURES = (MigrationError, ConfinedToolError, EngineError, OSError, Unavailable)


class MigrationRun:
    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.wants_cutover = asyncio.Event()


class MigrationRuns:
    def __init__(
        self,
        settings: CellSettings,
        supervisor: Supervisor,
        verifier: Verifier,
        restores: Restores,
        records: MigrationRecords,
    ) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._records = records
        self._kinds = MigrationKinds(settings, supervisor.host, verifier, restores, records)
        self._runs: dict[str, MigrationRun] = {}
        self._reverse_syncs = ReverseSyncs(settings, records, self._kinds)

    def resume(self, instance: HostedInstance, record: Migration) -> None:
        """One that waits for its source has nothing to do."""
        if record.ending is not None:
            self._begin(instance, record, self._finish(instance, record, record.ending))
        elif record.has_ended:
            self._begin(instance, record, self._reverse_syncs.keep(instance, record))
        elif record.status != "awaiting_source":
            self._begin(instance, record, self._work(instance, record))

    def cut_over(self, record: Migration, keep_way_back_s: int) -> None:
        """Told once by the record too, lest a restart forgets it."""
        record.status, record.keep_way_back_s = "cutting_over", keep_way_back_s
        self._records.save(record)
        run = self._runs.get(record.migration_id)
        if run is not None:
            run.wants_cutover.set()

    async def cancel(
        self, instance: HostedInstance, record: Migration, reason: str | None = None
    ) -> None:
        """What it made is removed afterwards; a migration that is ending already goes on so."""
        former = self._runs.get(record.migration_id)
        if record.ending is not None:
            if former is None or former.task.done():
                # It broke off, such as for want of disk.
                self._begin(instance, record, self._finish(instance, record, record.ending))
            return
        if "swap" in record.made and reason is None:
            # The data may be the owner's already; only what goes with the instance is broken off.
            return
        record.status, record.ending, record.reason = "cancelling", "cancelled", reason
        self._records.save(record)
        self._begin(instance, record, self._end_instead(former, instance, record))

    def end_way_back(self, instance: HostedInstance, record: Migration, reason: str | None) -> None:
        """Of one that is completed; at once, and also after a restart."""
        if record.way_back_until is None:
            return
        record.way_back_until, record.reason = time.time(), reason
        self._records.save(record)
        run = self._runs.get(record.migration_id)
        if run is None or run.task.done():
            self.resume(instance, record)

    async def until_ended(self, record: Migration, within_s: float) -> None:
        """Or for as long; it goes on then. Nobody waits for an engine that is to run again."""
        run, began = self._runs.get(record.migration_id), time.monotonic()
        while run is not None and not run.task.done() and time.monotonic() - began < within_s:
            if record.has_ended and record.way_back_until is None:
                return
            await asyncio.wait({run.task}, timeout=LOOK_EVERY_S)

    async def _end_instead(
        self, former: MigrationRun | None, instance: HostedInstance, record: Migration
    ) -> None:
        for _ in range(STOPS_MAX):
            if former is None or former.task.done():
                break
            former.task.cancel()
            await asyncio.wait({former.task}, timeout=STOP_AGAIN_S)
        else:
            log.error("cell.migration_not_stopped", migration_id=record.migration_id)
        await self._end_at_last(instance, record, "cancelled")

    def _begin(
        self, instance: HostedInstance, record: Migration, work: Coroutine[Any, Any, None]
    ) -> None:
        awake = self._awake(instance, work)
        self._runs[record.migration_id] = MigrationRun(self._supervisor.spawn(awake))

    async def _awake(self, instance: HostedInstance, work: Coroutine[Any, Any, None]) -> None:
        """The instance does not fall asleep meanwhile."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                instance.touch(AWAKE_S)
                await asyncio.wait({task}, timeout=AWAKE_S / 2)
            task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _finish(self, instance: HostedInstance, record: Migration, ending: Status) -> None:
        await self._end_at_last(instance, record, ending)
        if record.way_back_until is not None:
            await self._reverse_syncs.keep(instance, record)

    async def _work(self, instance: HostedInstance, record: Migration) -> None:
        try:
            await self._run_on(instance, record)
        except FAILURES as error:
            reason = bounded(for_owner(str(error)) or type(error).__name__)
        except Exception as error:
            log.exception("cell.migration_broken", migration_id=record.migration_id, exc_info=error)
            reason = "an internal error"
        else:
            if record.way_back_until is not None:
                await self._reverse_syncs.keep(instance, record)
            return
        if instance.metrics.storage_bytes > instance.record.spec.size.storage_bytes:
            reason = f"{FULL} ({reason})"
        log.warning("cell.migration_failed", migration_id=record.migration_id, reason=reason)
        record.ending, record.reason = "failed", reason
        self._records.save(record)
        await self._end_at_last(instance, record, "failed")

    async def _run_on(self, instance: HostedInstance, record: Migration) -> None:
        """A sync, which may have taken days so far, goes on where its engine was started anew."""
        for _ in range(ENGINES_MAX):
            await self._until_running(instance)
            engine_process = instance.process
            try:
                return await self._run(instance, record)
            except FAILURES as error:
                goes_on = instance.process is engine_process and _is_alive(engine_process)
                if goes_on or record.mode != "copy_and_sync" or record.status not in FOLLOWS:
                    raise
                log.info(
                    "cell.migration_goes_on", migration_id=record.migration_id, reason=str(error)
                )
        raise MigrationError(f"the engine was started anew {ENGINES_MAX} times; begin anew")

    async def _run(self, instance: HostedInstance, record: Migration) -> None:
        engine = await self._kinds.of(instance, record)
        try:
            await self._run_with(engine, instance, record)
        finally:
            if isinstance(engine, RedisSyncMigration | MySQLSyncMigration | TableFilesMigration):
                await engine.close()
        await self._end(instance, record, "completed")

    async def _run_with(self, engine: Engine, instance: HostedInstance, record: Migration) -> None:
        if record.status == "preflight":
            report = await self._preflight(instance, engine)
            record.preflight = report.told()
            self._records.save(record)
            if blocking := report.blocking:
                raise MigrationError(blocking[0].message)
            if record.dry_run:
                return
            engine.work.enter("copying")
        if "swap" not in record.made:
            if record.status == "copying" or not isinstance(engine, Following):
                engine.work.enter("copying")
                async with self._place(instance):
                    await engine.copy()
            if isinstance(engine, Following):
                await self._sync(engine, record)
        await engine.swap()

    async def _preflight(self, instance: HostedInstance, engine: Engine) -> PreflightReport:
        within_s = self._settings.migration_silence_s
        async with self._place(instance):
            if isinstance(engine, READS_ALL):
                # All of it is read, in whatever time that takes.
                return await engine.preflight()
            try:
                async with asyncio.timeout(within_s):
                    return await engine.preflight()
            except TimeoutError as error:
                raise MigrationError(
                    f"the source did not answer within {within_s:.0f} s what the preflight asked; "
                    "a lock may be held there"
                ) from error

    async def _sync(self, engine: Following, record: Migration) -> None:
        wants_cutover = self._runs[record.migration_id].wants_cutover
        if record.status in ("cutting_over", "verifying"):
            wants_cutover.set()
        else:
            engine.work.enter("syncing")
        while True:
            try:
                return await engine.follow(wants_cutover)
            except NotCaughtUpError as error:
                wants_cutover.clear()
                engine.work.enter("syncing")
                engine.refused = record.reason = str(error)

    async def _end_at_last(
        self, instance: HostedInstance, record: Migration, ending: Status
    ) -> None:
        """A disk that is full by now is not so for ever, and nobody else would end it."""
        while True:
            try:
                return await self._end(instance, record, ending)
            except (OSError, sqlite3.Error) as error:
                if instance.record.desired == "erased":
                    raise
                log.warning(
                    "cell.migration_end_failed",
                    migration_id=record.migration_id,
                    reason=repr(error),
                )
                await asyncio.sleep(END_AGAIN_S)

    async def _end(self, instance: HostedInstance, record: Migration, ending: Status) -> None:
        """It has ended once nothing of it is left where it does not belong."""
        record.ending = ending
        self._records.save(record)
        left = await self._leave(instance, record)
        if ending == "completed":
            left = left and f"the data is there, but {left}"
        record.reason = "; ".join(filter(None, (record.reason, left))) or None
        if record.reason:
            record.reason = bounded(record.reason)
        await in_own_thread(spool.remove, instance)
        if ending == "completed" and MADE in record.made:
            record.way_back_until = time.time() + record.keep_way_back_s
        record.status, record.ending = ending, None
        self._records.save(record)
        log.info("cell.migration_ended", migration_id=record.migration_id, status=ending)

    async def _leave(self, instance: HostedInstance, record: Migration) -> str | None:
        """Tries for a while; what remains is said."""
        began = time.monotonic()
        kept = {MADE} if record.ending == "completed" else set()
        while record.made.keys() - kept:
            try:
                # A source may never answer what is asked of it, as while a lock is held there.
                async with asyncio.timeout(self._settings.migration_leave_s):
                    engine = await self._kinds.of(instance, record)
                    if instance.usable:
                        await engine.drop()
                    await engine.leave()
                if "database" not in record.made or instance.record.desired == "erased":
                    break
                why = "the instance is not running"
            except FAILURES as error:
                why = for_owner(str(error)) or "no answer came in time"
            except Exception as error:
                # It is said what remains: who cancels must not wait for ever.
                log.exception(
                    "cell.migration_left", migration_id=record.migration_id, exc_info=error
                )
                why = "an internal error"
            # An engine that is starting again is waited for.
            comes_back = instance.record.desired == "running" and not instance.usable
            within_s = RUNNING_WITHIN_S if comes_back else self._settings.migration_leave_s
            if time.monotonic() - began > within_s or instance.record.desired == "erased":
                there = [each for each in record.made.items() if each[0] not in kept]
                names = " and ".join(f"the {kind} {name}" for kind, name in there)
                return f"{names} could not be removed: {why}" if names else None
            await asyncio.sleep(AGAIN_S)
        return None

    async def _until_running(self, instance: HostedInstance) -> None:
        """An engine may be starting, as with the cell."""
        deadline = time.monotonic() + RUNNING_WITHIN_S
        while not instance.usable:
            if instance.record.desired != "running" or time.monotonic() > deadline:
                raise MigrationError(f"the instance is {instance.status}")
            await asyncio.sleep(LOOK_EVERY_S)

    @asynccontextmanager
    async def _place(self, instance: HostedInstance) -> AsyncIterator[None]:
        async with self._supervisor.pools.migrations.turn(owner_of(instance.record)):
            yield


def _is_alive(process: Process | None) -> bool:
    return process is not None and process.alive
