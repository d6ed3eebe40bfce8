"""A Redis or Valkey that is followed until the cutover.

What comes is kept beside the instance, which stays as it is until then; see decision 0051. It is
condensed on a scratch engine, as is all that is to become the instance's data.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import structlog

from cell.engines.contents import Contents
from cell.engines.driver import EngineError
from cell.engines.resp import files
from cell.engines.resp.connection import RefusalError, connected
from cell.instances.reasons import for_owner
from cell.instances.verification import ScratchInstance
from cell.migrations import spool
from cell.migrations.errors import MigrationError, NotCaughtUpError
from cell.migrations.files import NEW, NOTHING, TRIED
from cell.migrations.lag import SourceLag
from cell.migrations.record import MigrationProgress
from cell.migrations.redis import comparing
from cell.migrations.redis.comparing import Comparison
from cell.migrations.redis.copying import RedisCopyMigration
from cell.migrations.redis.follower import StreamFollower
from cell.migrations.redis.journal import Journal
from cell.migrations.redis.stream import KnownCommand, known_commands
from cell.migrations.redis.watching import LastingFacts
from cell.runtime import engine_files
from cell.runtime.own_threads import in_own_thread
from specserver import Unavailable

log = structlog.get_logger("cell.migrations")
T = TypeVar("T")

CONDENSED: Final = "condensed"
LOOK_EVERY_S: Final = 1.0
CAUGHT_UP_WITHIN_S: Final = 600.0
CONDENSED_AGAIN_S, FAILED_AGAIN_S = 5.0, 30.0
KNOWN_WITHIN_S: Final = 60.0


@dataclass
class RedisSyncMigration(RedisCopyMigration):
    refused: str | None = field(default=None, init=False)
    """Why the last cutover was not made, told until the next one."""
    syncs = True

    def __post_init__(self) -> None:
        self._journal = Journal(spool.folder(self.work.instance))
        self._running: StreamFollower | None = None
        # Whether something was removed after what was compared.
        self._deletes = False
        self._next_condensing = 0.0
        self._lag = SourceLag[int]()

    @property
    def _file(self) -> Path:
        return self._journal.base(self._journal.known.base)

    @property
    def _follower(self) -> StreamFollower:
        assert self._running is not None
        return self._running

    async def close(self) -> None:
        """Ends what goes on beside; all that has come stays."""
        running, self._running = self._running, None
        if running is not None:
            await running.end()

    async def copy(self) -> None:
        if self._running is not None:
            return
        await self._resume()
        if self._running is None:
            await self._fetch()

    async def follow(self, wants_cutover: asyncio.Event) -> None:
        """Until the cutover is made. Raises MigrationError where it cannot go on."""
        await self._resume()
        if self._running is None:
            raise MigrationError("what had come of the source is lost; begin anew")
        watch = asyncio.create_task(self._watch())
        try:
            while not wants_cutover.is_set():
                await self._keep_short()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await wants_cutover.wait()
            await self._cut_over()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    # What comes, beside everything else.

    async def _fetch(self) -> None:
        self._found = None
        await in_own_thread(spool.remove, self.work.instance)
        await self._make_folder()
        self._running = await self._new_follower()
        await self._running.begin()

    async def _resume(self) -> None:
        """What a former cell had begun."""
        if self._running is not None:
            return
        await self._make_folder()
        await in_own_thread(self._journal.open)
        if self._journal.position is not None:
            self._running = await self._new_follower()
            self._running.resume()

    async def _new_follower(self) -> StreamFollower:
        return StreamFollower(self.work, self.conduit, self._journal, await self._known())

    async def _known(self) -> dict[bytes, KnownCommand]:
        """The commands of the instance's engine, which may be busy for a while."""
        deadline = time.monotonic() + KNOWN_WITHIN_S
        socket, instance = str(self.work.instance.site.socket), self.work.instance
        while True:
            try:
                async with connected(socket, self.restores.login(instance)) as connection:
                    return known_commands(await connection.ask_nested("COMMAND"))
            except (RefusalError, OSError) as error:
                if time.monotonic() > deadline:
                    told = f"the instance does not say which commands it has: {error}"
                    raise EngineError(told) from error
            await asyncio.sleep(LOOK_EVERY_S)

    async def _watch(self) -> None:
        asked = LastingFacts(self.conduit, self.silence_s)
        try:
            while self._running is not None:
                await self._look(asked, self._running)
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            await asked.end()

    async def _look(self, asked: LastingFacts, follower: StreamFollower) -> None:
        """Takes the figures."""
        record = self.work.record
        reason = follower.reason
        try:
            there = (await asked.facts()).offset or 0
        except MigrationError as error:
            reason = reason or str(error)
        else:
            progress = record.progress = record.progress or MigrationProgress()
            now, here = time.time(), follower.offset
            progress.lag_bytes = max(0, there - here)
            progress.lag_s = self._lag.seconds(now, here, there)
            progress.updated_at = now
        self.work.tell(reason, self.refused)

    # What has come, condensed.

    async def _keep_short(self) -> None:
        """Raises MigrationError where the source sent what cannot be taken."""
        if self._follower.failure is not None:
            raise self._follower.failure
        if not self._follower.is_long or time.monotonic() < self._next_condensing:
            return
        self._next_condensing = time.monotonic() + FAILED_AGAIN_S
        try:
            async with asyncio.timeout(CAUGHT_UP_WITHIN_S):
                await self._follower.rotate()
            await self._condense(comparing.check)
            self._next_condensing = time.monotonic() + CONDENSED_AGAIN_S
        except TimeoutError:
            self.refused = self._follower.reason
        except NotCaughtUpError as error:
            log.warning("cell.migration_not_condensed", reason=str(error))
            self.refused = str(error)

    async def _condense(self, look: Callable[[ScratchInstance], Awaitable[T]]) -> T:
        """All but the last log becomes a new base, and what `look` saw before. NotCaughtUpError."""
        journal, at = self._journal, self._journal.known
        logs = [journal.log(number) for number in range(at.first, at.last)]
        folder, target = journal.folder / TRIED, journal.folder / CONDENSED
        for each in (folder, target):
            await in_own_thread(engine_files.remove, each)
        try:
            await in_own_thread(_take_log, journal.base(at.base), logs, folder, True)
            seen = await self.verifier.condensed(self.work.instance, folder, look, target)
            made = await in_own_thread(_base_in, target)
            if not await in_own_thread(journal.condensed, made, at):
                raise NotCaughtUpError("the source had to be copied anew meanwhile; try again")
        except (EngineError, RefusalError, OSError, Unavailable) as error:
            raise NotCaughtUpError(
                "an engine of the instance's version and size does not take what the source has "
                f"now: {for_owner(str(error))}"
            ) from error
        finally:
            for each in (folder, target):
                await in_own_thread(engine_files.remove, each)
        return seen

    # The cutover.

    async def _cut_over(self) -> None:
        self.refused = None
        self.work.enter("cutting_over")
        await self._refuse_data()
        try:
            async with asyncio.timeout(CAUGHT_UP_WITHIN_S):
                facts = await self._follower.cut()
        except TimeoutError as error:
            raise NotCaughtUpError.late(CAUGHT_UP_WITHIN_S, self._follower.reason) from error
        except MigrationError as error:
            if error is self._follower.failure:
                raise
            raise NotCaughtUpError(f"the source could not be asked: {error}") from error
        self.work.enter("verifying")
        compared = await self._condense(
            lambda scratch: comparing.compare(scratch, facts, self.conduit, self.silence_s)
        )
        if compared.differences:
            # What was written meanwhile may be on its way.
            await asyncio.sleep(LOOK_EVERY_S)
        _refuse_changed(self._follower)
        self._take(compared)
        await self._refuse_data()
        _refuse_unheard(self._follower)
        follower, self._running = self._follower, None
        await follower.end()
        _refuse_changed(follower)
        self._deletes = follower.deletes

    async def _refuse_data(self) -> None:
        try:
            holds = await self._holds()
        except EngineError as error:
            raise NotCaughtUpError(f"the instance does not respond: {error}") from error
        if holds.digest != NOTHING:
            raise NotCaughtUpError(
                "data was written into the instance meanwhile; remove it, and cut over again"
            )

    def _take(self, compared: Comparison) -> None:
        self._found = compared.contents
        self.work.record.verification = compared.told()
        self.work.save()
        if compared.differences:
            first = compared.differences[0]
            raise NotCaughtUpError(
                f"source and instance would differ, in {first.object} first: {first.source} there, "
                f"and {first.target} here; cut over again, or begin anew"
            )

    async def swap(self) -> None:
        await in_own_thread(self._journal.open)
        try:
            await super().swap()
        finally:
            self._journal.close()

    async def _prepared(self) -> Path:
        folder = self._journal.folder / NEW
        await in_own_thread(engine_files.remove, folder)
        given = (self._journal.base(self._journal.known.base), self._journal.logs)
        await in_own_thread(_take_log, *given, folder, False)
        return folder

    def _compare(self, holds: Contents) -> None:
        if not self._deletes:
            super()._compare(holds)

    def _verified(self, holds: Contents) -> None:
        """It was, before the swap."""


def _base_in(folder: Path) -> Path:
    return next(folder.glob("*.base.rdb"))


def _refuse_changed(follower: StreamFollower) -> None:
    """What has expired since the cut is taken over, too; anything else was written."""
    if follower.changed is not None:
        raise NotCaughtUpError.written(follower.changed)


def _refuse_unheard(follower: StreamFollower) -> None:
    """Of a source that is not heard of, nobody knows what was written since."""
    if not follower.hears:
        raise NotCaughtUpError(
            "the connection to the source broke off during the cutover; cut over again"
        )


def _take_log(base: Path, logs: list[Path], folder: Path, continued: bool) -> None:
    files.take_log(base, logs, folder, trusted=not continued, continued=continued)
