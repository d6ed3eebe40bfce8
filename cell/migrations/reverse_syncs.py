"""Completed migrations whose source gets what is written to the instance: kept, and ended."""

import asyncio
import time
from typing import Any

import structlog

from cell.engines.driver import EngineError
from cell.instances.hosted import HostedInstance
from cell.instances.reasons import for_owner
from cell.migrations.errors import MigrationError, ReverseSyncEndedError
from cell.migrations.kinds import MigrationKinds
from cell.migrations.postgres import reverse_sync
from cell.migrations.postgres.reverse_sync import MADE, ReverseSync
from cell.migrations.postgres.sync import SyncMigration
from cell.migrations.record import Migration, MigrationRecords
from cell.migrations.report import bounded
from cell.runtime.confined_tools import ConfinedToolError
from cell.settings import CellSettings
from specserver import Unavailable

log = structlog.get_logger("cell.migrations")

AGAIN_S = 2.0
LOOK_EVERY_S = 0.5
FAILURES = (MigrationError, ConfinedToolError, EngineError, OSError, Unavailable)


class ReverseSyncs:
    def __init__(
        self, settings: CellSettings, records: MigrationRecords, kinds: MigrationKinds
    ) -> None:
        self._settings = settings
        self._records = records
        self._kinds = kinds

    async def keep(self, instance: HostedInstance, record: Migration) -> None:
        """Until it ends, and nothing is left of it."""
        until = record.way_back_until
        if until is not None:
            log.info("cell.way_back_kept", migration_id=record.migration_id, until=until)
            await self._carry_on(instance, record)
            await self._end(instance, record)
        # Nobody waits for an instance that is paused or deleted: its slot goes when it runs.
        while MADE in record.made and instance.record.desired != "erased":
            await self._drop(instance, record)
            await asyncio.sleep(AGAIN_S)

    async def _carry_on(self, instance: HostedInstance, record: Migration) -> None:
        note = record.reason
        while not _is_over(record):
            if not instance.usable:
                record.reason = "the instance is not running; its changes follow when it does"
                await asyncio.sleep(LOOK_EVERY_S)
                continue
            try:
                await self._until_over(record, self._carry(instance, record, note))
            except ReverseSyncEndedError as error:
                record.reason = bounded(f"the way back has ended: {for_owner(str(error))}")
                record.way_back_until = time.time()
                self._records.save(record)
            except FAILURES as error:
                if not _is_over(record):
                    why = for_owner(str(error)) or type(error).__name__
                    record.reason = bounded(f"the way back is held up: {why}; it is tried again")
                    await asyncio.sleep(AGAIN_S)
            except Exception as error:
                log.exception(
                    "cell.way_back_broken", migration_id=record.migration_id, exc_info=error
                )
                record.reason = "the way back is held up: an internal error; it is tried again"
                await asyncio.sleep(AGAIN_S)

    async def _carry(self, instance: HostedInstance, record: Migration, note: str | None) -> None:
        def works() -> None:
            record.reason = note

        await (await self._reverse_sync(instance, record)).carry(works)

    async def _until_over(self, record: Migration, work: Any) -> None:
        """A source that never answers does not keep it from ending."""
        working = asyncio.ensure_future(work)
        try:
            while not (working.done() or _is_over(record)):
                await asyncio.wait({working}, timeout=LOOK_EVERY_S)
            if working.done():
                working.result()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _end(self, instance: HostedInstance, record: Migration) -> None:
        left = await self._leave(instance, record)
        record.reason = bounded("; ".join(filter(None, (record.reason, left)))) or None
        record.way_back_until = None
        self._records.save(record)
        log.info("cell.way_back_ended", migration_id=record.migration_id)

    async def _leave(self, instance: HostedInstance, record: Migration) -> str | None:
        """Tries for a while; what remains at the source is said."""
        began = time.monotonic()
        while True:
            await self._drop(instance, record)
            try:
                async with asyncio.timeout(self._settings.migration_leave_s):
                    await (await self._reverse_sync(instance, record)).leave()
            except FAILURES as error:
                why = for_owner(str(error)) or "no answer came in time"
            else:
                return None
            if time.monotonic() - began > self._settings.migration_leave_s:
                name = reverse_sync.name_of(record)
                return f"the schema {name} could not be removed at the source: {why}"
            await asyncio.sleep(AGAIN_S)

    async def _drop(self, instance: HostedInstance, record: Migration) -> None:
        if MADE not in record.made or not instance.usable:
            return
        try:
            await reverse_sync.drop(await self._kinds.target(instance, record), record.made[MADE])
        except FAILURES as error:
            log.warning(
                "cell.way_back_not_dropped",
                migration_id=record.migration_id,
                reason=for_owner(str(error)),
            )
            return
        del record.made[MADE]
        self._records.save(record)

    async def _reverse_sync(self, instance: HostedInstance, record: Migration) -> ReverseSync:
        engine = await self._kinds.of(instance, record)
        assert isinstance(engine, SyncMigration)
        return engine.way_back()


def _is_over(record: Migration) -> bool:
    return record.way_back_until is None or time.time() >= record.way_back_until
