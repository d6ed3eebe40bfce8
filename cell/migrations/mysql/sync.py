"""A running MariaDB that is followed until the cutover.

The copy is put into the instance, and its owner's session takes the changes there; see decision
0057. What only the source may do until then rests: triggers and events.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from cell.engines.driver import EngineError
from cell.engines.mysql import client, examination
from cell.engines.wal_sources import LogPlace
from cell.instances.verification import ScratchInstance
from cell.migrations import spool
from cell.migrations.errors import FollowError, MigrationError, NotCaughtUpError
from cell.migrations.files import NOTHING, WRITTEN
from cell.migrations.lag import SourceLag
from cell.migrations.mysql import binlog_stream, digests, resting, session, sync_target
from cell.migrations.mysql.digests import TableDigest
from cell.migrations.mysql.follower import NOWHERE, BinlogFollower
from cell.migrations.mysql.migration import MySQLCopyMigration, write_synced
from cell.migrations.mysql.preflight import APP
from cell.migrations.mysql.session import SourceSession
from cell.migrations.mysql.sync_target import SyncTarget
from cell.migrations.record import MigrationProgress
from cell.migrations.report import verification
from cell.runtime.own_threads import in_own_thread

T = TypeVar("T")
POSITION: Final = "position"
LOOK_EVERY_S: Final = 1.0
PUT_WITHIN_S: Final = 120.0
BACK_WITHIN_S: Final = 60.0
CAUGHT_UP_WITHIN_S: Final = 600.0
SNAPSHOT: Final = (
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
)


@dataclass
class MySQLSyncMigration(MySQLCopyMigration):
    refused: str | None = field(default=None, init=False)
    """Why the last cutover was not made, told until the next one."""
    syncs = True

    def __post_init__(self) -> None:
        self._running: BinlogFollower | None = None
        self._file_bytes = 0
        self._lag = SourceLag[LogPlace]()

    @property
    def _made(self) -> str:
        """The database of the position, which is there as long as the copy is not the owner's."""
        return f"menagerie_sync_{self.work.record.suffix}"

    @property
    def _follower(self) -> BinlogFollower:
        assert self._running is not None
        return self._running

    async def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.end()

    # The copy, with the position from which it is followed.

    async def copy(self) -> None:
        if not await self._is_here():
            await super().copy()
            await self._put()
        self.work.record.verification = None

    async def _in_transaction(self, source: SourceSession) -> None:
        gtid = await binlog_stream.gtid_of(source)
        path = spool.folder(self.work.instance) / POSITION
        await in_own_thread(write_synced, path, gtid.encode())

    async def _run(self, scratch: ScratchInstance) -> None:
        await super()._run(scratch)
        path = spool.folder(self.work.instance) / POSITION
        gtid = (await in_own_thread(path.read_bytes)).decode()

        def lay(cursor: Any) -> None:
            sync_target.make(cursor, self._made, gtid)
            resting.lay(cursor, APP, self._made)

        await self._of_owner(lay, scratch)

    async def _put(self) -> None:
        instance = self.work.instance
        if (await self._holds()).digest != NOTHING:
            raise MigrationError(WRITTEN)
        self.work.record.made["database"] = APP
        self.work.save()
        folder = await self._prepared()
        putting = asyncio.ensure_future(self.restores.put(instance, folder, self._refuse_written))
        try:
            await asyncio.shield(putting)
        except asyncio.CancelledError:
            # Whoever cancels a migration does not leave the instance stopped.
            await asyncio.wait({putting}, timeout=PUT_WITHIN_S)
            raise
        finally:
            putting.cancel()
            await asyncio.gather(putting, return_exceptions=True)
        await in_own_thread(spool.remove, instance)

    async def _is_here(self) -> bool:
        return await self._of_owner(lambda cursor: sync_target.is_there(cursor, self._made))

    async def _of_owner(
        self, work: Callable[[Any], T], scratch: ScratchInstance | None = None
    ) -> T:
        """In a session of the owner's. Raises EngineError."""
        site = (scratch or self.work.instance).site
        deadline = time.monotonic() + BACK_WITHIN_S

        def asked() -> T:
            login = scratch.login if scratch else self.restores.login(self.work.instance)
            given = (site.socket, login.username, login.password)
            with client.session(*given, sync_target.ANSWER_TIMEOUT_S) as cursor:
                return work(cursor)

        while True:
            try:
                return await in_own_thread(asked)
            except client.FAILURES as error:
                if not isinstance(error, client.NotThereError) or time.monotonic() > deadline:
                    raise EngineError(f"the copy cannot be looked after: {error}") from error
            # It may just be starting anew.
            await asyncio.sleep(LOOK_EVERY_S)

    # The changes.

    async def follow(self, wants_cutover: asyncio.Event) -> None:
        """Until the cutover is made. Raises MigrationError where it cannot go on."""
        if self._running is None:
            instance = self.work.instance
            login = partial(self.restores.login, instance)
            target = SyncTarget(instance.site.socket, login, APP, self._made)
            given = (instance, self.conduit, target, self._silence_s)
            self._running = BinlogFollower(*given)
        watch = asyncio.create_task(self._watch())
        try:
            await self._follower.until(wants_cutover.is_set, LOOK_EVERY_S / 4)
            await self._cut_over()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            if self._running is not None:
                self._running.release()

    async def _watch(self) -> None:
        """Takes the figures, on one connection as long as it lasts."""
        while True:
            try:
                async with self._session() as source:
                    (size,) = await source.row("SELECT @@GLOBAL.max_binlog_size", 1)
                    self._file_bytes = session.count_of(size)
                    while True:
                        self._look(await binlog_stream.place_of(source))
                        await asyncio.sleep(LOOK_EVERY_S)
            except MigrationError as error:
                self.work.tell(str(error), self.refused)
            await asyncio.sleep(LOOK_EVERY_S)

    def _look(self, there: LogPlace) -> None:
        here, now = self._follower.place, time.time()
        progress = self.work.record.progress = self.work.record.progress or MigrationProgress()
        progress.lag_bytes = progress.lag_s = None
        if here != NOWHERE:
            progress.lag_bytes = self._bytes_between(here, there)
            progress.lag_s = self._lag.seconds(now, here, there)
        progress.updated_at = now
        self.work.tell(self._follower.reason, self.refused)

    def _bytes_between(self, here: LogPlace, there: LogPlace) -> int:
        """At most as many: of files between the two, only the number is known."""
        files = max(0, there.file - here.file)
        return max(0, files * self._file_bytes + there.offset - here.offset)

    # The cutover.

    async def _cut_over(self) -> None:
        self.refused = None
        self.work.enter("cutting_over")
        try:
            async with self._session() as source:
                await self._compare_sides(source)
            async with self._session() as source:
                there = await binlog_stream.place_of(source)
        except NotCaughtUpError:
            raise
        except MigrationError as error:
            if error is self._follower.failure or isinstance(error, FollowError):
                raise
            raise NotCaughtUpError(f"the source could not be asked: {error}") from error
        self._follower.release()
        await self._within(lambda: self._follower.place >= there)
        if (changed := self._follower.changed) is not None:
            raise NotCaughtUpError.written(changed)
        await self.close()

    async def _compare_sides(self, source: SourceSession) -> None:
        """At one moment, which both have."""
        await source.run(*SNAPSHOT)
        there = await binlog_stream.place_of(source)
        stop = self._follower.stop_at(there)
        await self._within(stop.reached.is_set)
        self.work.enter("verifying")
        within_s = self.work.settings.dump_timeout_s
        expected = await digests.of_source(source, (self.conduit.source.database,), within_s)
        differing = await self._differing(expected)
        counted = sum(each.count for each in expected)
        self.work.record.verification = verification(len(expected), counted, differing)
        self.work.save()
        if differing:
            first = differing[0]
            raise FollowError(
                f"source and instance differ in {len(differing)} tables, the first is "
                f"{first.object}: {first.source} there, and {first.target} here"
            )

    async def _within(self, reached: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(CAUGHT_UP_WITHIN_S):
                await self._follower.until(reached, LOOK_EVERY_S / 10)
        except TimeoutError as error:
            raise NotCaughtUpError.late(CAUGHT_UP_WITHIN_S, self._follower.reason) from error

    async def _differing(self, expected: list[TableDigest]) -> list[Any]:
        asked = {each.shown: digests.question(APP, each.name, each.columns) for each in expected}
        instance = self.work.instance
        given = (instance.site.socket, self.restores.login(instance), asked)
        try:
            found = await in_own_thread(examination.answers, *given)
        except EngineError as error:
            raise NotCaughtUpError(f"the instance does not respond: {error}") from error
        return digests.differences(expected, found)

    async def swap(self) -> None:
        """The copy becomes the owner's. Done again where it was broken off."""
        record = self.work.record
        record.made["swap"] = "begun"
        self.work.save()
        if await self._is_here():
            await self._of_owner(partial(resting.wake, database=APP, made=self._made))
            drop = f"DROP DATABASE IF EXISTS {session.identifier(self._made)}"
            await self._of_owner(lambda cursor: cursor.execute(drop))
        self._passed(await self._holds())
        for each in ("swap", "database"):
            record.made.pop(each, None)
        self.work.save()

    async def drop(self) -> None:
        """What came goes, but for what the owner has put there instead."""
        await self._of_owner(partial(sync_target.drop_copy, database=APP, made=self._made))
        for each in ("swap", "database"):
            self.work.record.made.pop(each, None)
