"""Follows the binary log of a source for as long as it takes, also after it breaks off."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog

from cell.engines.mysql.binary_log import GTID
from cell.engines.wal_sources import LogPlace
from cell.instances.hosted import HostedInstance
from cell.migrations.conduit import Conduit
from cell.migrations.errors import FollowError, MigrationError
from cell.migrations.mysql import binlog_stream
from cell.migrations.mysql.applier import Applier
from cell.migrations.mysql.binlog_stream import BinlogStream, LoggedEvent
from cell.migrations.mysql.sync_target import HeldUpError, SyncTarget
from cell.runtime.own_threads import in_own_thread
from cell.runtime.to_its_end import to_its_end

log = structlog.get_logger("cell.migrations")

NOWHERE: Final = LogPlace(0, 0)
AGAIN_S, AGAIN_MAX_S = 0.5, 30.0
# An engine that is started anew, or that others keep busy.
HELD_UP_FOR_S: Final = 900.0
# What is told to a session that does not come to its end.
END_AGAIN_S: Final = 10.0


class _Stop:
    """Where the follower waits, once it has all before that place of the source's log."""

    def __init__(self, place: LogPlace) -> None:
        self.place = place
        self.reached = asyncio.Event()
        self.released = asyncio.Event()


class BinlogFollower:
    """`place` is where the instance is; `reason` what it waits for, `failure` why it cannot go on.

    `changed` names what has changed since it was last emptied.
    """

    def __init__(
        self,
        instance: HostedInstance,
        conduit: Conduit,
        target: SyncTarget,
        silence_s: float,
    ) -> None:
        self._instance = instance
        self._conduit = conduit
        self._target = target
        self._silence_s = silence_s
        self._applier = Applier(conduit.source.database, target)
        self._stop: _Stop | None = None
        self._held_up_since: float | None = None
        self.place = NOWHERE
        self.reason: str | None = None
        self.failure: MigrationError | None = None
        self._task = asyncio.create_task(self._run())

    @property
    def changed(self) -> str | None:
        return self._applier.changed

    def stop_at(self, place: LogPlace) -> _Stop:
        """Nothing that comes after it is taken until it is released."""
        self.release()
        self._stop = _Stop(place)
        return self._stop

    def release(self) -> None:
        stop, self._stop = self._stop, None
        if stop is not None:
            self._applier.changed = None
            stop.released.set()

    async def until(self, reached: Callable[[], bool], look_s: float) -> None:
        """Raises MigrationError where it cannot go on."""
        while not reached():
            if self.failure is not None:
                raise self.failure
            await asyncio.sleep(look_s)

    async def end(self) -> None:
        """Nothing is written when it returns."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await in_own_thread(self._target.close)

    async def _run(self) -> None:
        again_s = AGAIN_S
        while True:
            began = time.monotonic()
            try:
                await self._connected()
            except FollowError as error:
                self.failure = error
                return
            except HeldUpError as error:
                self._wait_for_engine(str(error))
            except MigrationError as error:
                self.reason = str(error)
            except Exception as error:
                log.exception("cell.migration_follower_broken", exc_info=error)
                self.failure = MigrationError("an internal error")
                return
            if self.failure is not None:
                return
            log.info("cell.migration_source_again", reason=self.reason)
            again_s = AGAIN_S if time.monotonic() - began > AGAIN_MAX_S else again_s
            await asyncio.sleep(again_s)
            again_s = min(2 * again_s, AGAIN_MAX_S)

    def _wait_for_engine(self, reason: str) -> None:
        now = time.monotonic()
        self.reason, self._held_up_since = reason, self._held_up_since or now
        is_wanted = self._instance.record.desired == "running"
        if not is_wanted or now - self._held_up_since > HELD_UP_FOR_S:
            self.failure = MigrationError(reason)

    async def _connected(self) -> None:
        await self._to_end(self._applier.begin)
        gtid = self._target.gtid
        async with binlog_stream.opened(self._conduit, self._silence_s, gtid) as stream:
            self.place = NOWHERE
            await self._follow(stream)

    async def _follow(self, stream: BinlogStream) -> None:
        while True:
            events = await stream.events()
            self.reason = self._held_up_since = None
            while events:
                count = self._until_stop(events)
                await self._take(events[:count])
                events = events[count:]
                await self._wait(stop_before=bool(events))

    async def _take(self, events: list[LoggedEvent]) -> None:
        if not events:
            return
        used_s = 0.0

        def take() -> None:
            nonlocal used_s
            began = time.thread_time()
            self._applier.take(events)
            used_s = time.thread_time() - began

        await self._to_end(take)
        if self._applier.is_between:
            self.place = events[-1].ends
        # Whoever holds the interpreter holds up the cell: half of the time at most.
        await asyncio.sleep(used_s)

    def _until_stop(self, events: list[LoggedEvent]) -> int:
        """How many of them come before the place to stop at."""
        stop = self._stop
        if stop is None:
            return len(events)
        for count, each in enumerate(events):
            if each.kind == GTID and each.begins >= stop.place:
                return count
        return len(events)

    async def _wait(self, *, stop_before: bool) -> None:
        """Where it is to stop, until it is released."""
        stop = self._stop
        if stop is None or not self._applier.is_between:
            return
        if stop_before or self.place >= stop.place:
            await self._to_end(self._applier.keep)
            stop.reached.set()
            await stop.released.wait()

    async def _to_end(self, work: Callable[[], None]) -> None:
        """In a thread, which is waited for even by who is cancelled; its session is ended then."""
        task = asyncio.ensure_future(in_own_thread(work))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await to_its_end(self._ended(task))
            raise

    async def _ended(self, task: asyncio.Future[None]) -> None:
        while not task.done():
            await asyncio.wait({asyncio.ensure_future(in_own_thread(self._target.end))})
            await asyncio.wait({task}, timeout=END_AGAIN_S)
        # Whoever cancels is not told of it.
        task.exception()
