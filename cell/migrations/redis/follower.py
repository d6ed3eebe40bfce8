"""Takes what a source sends its replicas, for as long as it takes: connected again, copied anew."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from cell.engines.resp.configuration import RespLimits
from cell.migrations import spool
from cell.migrations.conduit import Conduit
from cell.migrations.errors import MigrationError
from cell.migrations.redis.copying import Fetching, explained, facts_of
from cell.migrations.redis.facts import RedisFacts
from cell.migrations.redis.journal import Journal
from cell.migrations.redis.source import NOT_ONE, PsyncAnswer, ServerSource, logged_in
from cell.migrations.redis.stream import CommandStream, KnownCommand, StreamError
from cell.migrations.work import MigrationWork
from cell.runtime.own_threads import in_own_thread
from specserver import Unavailable

log = structlog.get_logger("cell.migrations")

BLOCK_BYTES: Final = 256 * 1024
LOOK_S: Final = 0.25
KEEP_EVERY_S: Final = 1.0
# A source sends a PING every 10 s, unless it is told otherwise.
SILENCE_S: Final = 60.0
AGAIN_S, AGAIN_MAX_S = 0.5, 30.0
# One that has to be copied anew so often in so long would be so for ever.
FULLS_MAX: Final = 5
FULLS_WITHIN_S: Final = 1800.0
LOG_BYTES_MIN: Final = 64 * 2**20
# Of what there is room for: where a log is condensed, and where no more of it is taken.
CONDENSED_AT, FULL_AT = 0.4, 0.8
WAITS = "changes wait at the source until those that have come are condensed"
ANEW = "the source does not have the changes since any more; all data is copied anew"
TOO_OFTEN = (
    f"all data had to be copied anew {FULLS_MAX} times within {FULLS_WITHIN_S / 60:.0f} minutes; "
    "raise repl-backlog-size and client-output-buffer-limit (replica) at the source"
)


@dataclass
class _Cut:
    """Asked for, anywhere or where the source is: its `facts`, and its history of then."""

    done: "asyncio.Future[RedisFacts | None]"
    anywhere: bool
    stop_at: int | None = None
    facts: RedisFacts | None = None


class StreamFollower:
    """`failure` says why it cannot go on; `reason` what it waits for meanwhile.

    `changed` and `deletes` are of what came after the last cut, as a CommandStream has them. It
    `hears` what the source writes, in the order in which it does, unless it is to connect again.
    """

    # One block at a time, whoever it is from.
    _turn = asyncio.Semaphore(1)

    def __init__(
        self,
        work: MigrationWork,
        conduit: Conduit,
        journal: Journal,
        known: Mapping[bytes, KnownCommand],
    ) -> None:
        self._work, self._conduit, self._journal, self._known = work, conduit, journal, known
        self.failure: MigrationError | None = None
        self.reason: str | None = None
        self.changed: str | None = None
        self.deletes = False
        self.hears = False
        self._task: asyncio.Task[None] | None = None
        self._began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stream: CommandStream | None = None
        self._began_at = 0
        self._fulls: deque[float] = deque(maxlen=FULLS_MAX)
        self._cut: _Cut | None = None

    async def begin(self) -> None:
        """Returns when all data is there, or how it went on is known. Raises MigrationError."""
        self.resume()
        await asyncio.shield(self._began)

    def resume(self) -> None:
        self._task = asyncio.create_task(self._go_on())

    async def end(self) -> None:
        """All that came as a whole is on disk then."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            if self._journal.position is not None:
                await self._settle()
        self._journal.close()

    @property
    def offset(self) -> int:
        """How much of the source's history has come."""
        if self._stream is not None:
            return self._began_at + self._stream.fed
        return self._journal.known.offset if self._journal.position else 0

    @property
    def room_bytes(self) -> int:
        """For logs, beside the copy."""
        base = self._journal.base(self._journal.known.base).stat().st_size
        return max(0, self._work.instance.ceiling_bytes - base)

    @property
    def is_long(self) -> bool:
        """Whether the log is to be condensed."""
        base = self._journal.base(self._journal.known.base).stat().st_size
        most = min(max(LOG_BYTES_MIN, base), self.room_bytes * CONDENSED_AT)
        return self._journal.size_bytes > most

    async def cut(self) -> RedisFacts:
        """Ends the log where the source is now, as soon as that has come; what it says of then.

        Raises MigrationError where it cannot be asked.
        """
        facts = await self._wait_for(anywhere=False)
        assert facts is not None
        return facts

    async def rotate(self) -> None:
        """Ends the log with what has come."""
        await self._wait_for(anywhere=True)

    async def _wait_for(self, *, anywhere: bool) -> RedisFacts | None:
        if self.failure is not None:
            raise self.failure
        cut = self._cut = _Cut(asyncio.get_running_loop().create_future(), anywhere)
        try:
            return await cut.done
        finally:
            self._cut = None

    async def _go_on(self) -> None:
        wait_s = AGAIN_S
        while True:
            before = self.offset
            try:
                await self._connected()
            except StreamError as error:
                self.failure = error
            except (MigrationError, Unavailable) as error:
                self.reason = str(error)
                if not self._began.done():
                    self._began.set_exception(error)
                    return
            except Exception as error:
                log.exception("cell.migration_stream", exc_info=error)
                self.failure = MigrationError("an internal error")
            if self.failure is not None:
                self._fail(self.failure)
                return
            wait_s = AGAIN_S if self.offset != before else min(2 * wait_s, AGAIN_MAX_S)
            await self._settle()
            await asyncio.sleep(wait_s)

    def _fail(self, failure: MigrationError) -> None:
        if not self._began.done():
            self._began.set_exception(failure)
        if self._cut is not None:
            _settle(self._cut.done, failure)

    async def _settle(self) -> None:
        """What has come as a whole is kept, and the rest comes again."""
        self.hears = False
        if self._stream is not None:
            await self._keep(self._stream)
            self._stream = None
        await _to_end(self._journal.drop)

    async def _connected(self) -> None:
        silence_s = self._work.settings.migration_silence_s
        async with explained(silence_s), logged_in(self._conduit, silence_s) as source:
            at = self._journal.position
            known = () if at is None else (at.replid, at.offset + 1)
            answered = await source.asked_for_data(*known)
            if answered.is_full:
                await self._take_all(source, answered)
            elif answered.replid is not None:
                await _to_end(self._journal.renamed, answered.replid)
            if not self._began.done():
                self._began.set_result(None)
            await self._follow(source)

    async def _take_all(self, source: ServerSource, answered: PsyncAnswer) -> None:
        if answered.replid is None:
            raise MigrationError(NOT_ONE)
        if self._journal.position is not None:
            self._count_full()
            self.reason = ANEW
            # Nobody has compared what is in it, nor has an engine read it.
            self.changed = "all data was copied anew"
        async with asyncio.timeout(self._work.settings.upgrade_timeout_s):
            await Fetching(self._work).receive(source, self._journal.fetched)
        await _to_end(self._journal.begin, answered.replid, answered.offset)
        if self._cut is not None:
            self._cut.stop_at = None

    def _count_full(self) -> None:
        now = time.monotonic()
        self._fulls.append(now)
        if len(self._fulls) == FULLS_MAX and now - self._fulls[0] < FULLS_WITHIN_S:
            raise StreamError(TOO_OFTEN)

    async def _follow(self, source: ServerSource) -> None:
        at = self._journal.known
        limits = RespLimits.of(self._work.instance.record.spec.size)
        self._began_at, self.hears = at.offset, True
        stream = self._stream = CommandStream(self._known, limits.value_bytes, at.database)
        kept_at, heard_at = 0.0, time.monotonic()
        while True:
            now = time.monotonic()
            if now - kept_at > KEEP_EVERY_S:
                await self._keep(stream)
                source.tell("REPLCONF", "ACK", str(self._journal.known.offset))
                kept_at = now
            most = await self._until_cut(stream)
            if self._journal.size_bytes > self.room_bytes * FULL_AT:
                self.reason, heard_at = WAITS, now
                await asyncio.sleep(LOOK_S)
                continue
            self.reason = None
            block = await source.block_soon(most, LOOK_S)
            if block is not None:
                heard_at = now
                spool.check_disk(self._work.instance, 0)
                async with self._turn:
                    began_at = time.monotonic()
                    await _to_end(self._take, stream, block)
                    # Whoever holds the interpreter holds up the cell: half of the time at most.
                    await asyncio.sleep(time.monotonic() - began_at)
            elif now - heard_at > SILENCE_S:
                raise MigrationError(f"the source said nothing for {SILENCE_S:.0f} s")

    async def _until_cut(self, stream: CommandStream) -> int:
        """How much may be taken next; cuts where that is asked for, and all has come."""
        cut = self._cut
        if cut is None or cut.done.done():
            return BLOCK_BYTES
        if cut.stop_at is None and not cut.anywhere:
            try:
                cut.facts, cut.stop_at = await self._asked()
            except (MigrationError, Unavailable) as error:
                _settle(cut.done, error)
                return BLOCK_BYTES
        if cut.stop_at is not None:
            if self.offset < cut.stop_at:
                return min(BLOCK_BYTES, cut.stop_at - self.offset)
            if not stream.is_whole:
                raise StreamError("the source says of its history what does not fit what it sends")
            self.changed, self.deletes = None, False
        await self._keep(stream)
        await _to_end(self._journal.rotate)
        _settle(cut.done, cut.facts)
        return BLOCK_BYTES

    async def _asked(self) -> tuple[RedisFacts, int]:
        """While nothing is read of what it sends, so that it has no less than has come."""
        silence_s = self._work.settings.migration_silence_s
        async with explained(silence_s), logged_in(self._conduit, silence_s) as source:
            facts = await facts_of(source)
        replid = facts.said.get("master_replid", self._journal.known.replid)
        if facts.offset is None or replid != self._journal.known.replid:
            raise MigrationError("the source goes on with another history; try again in a minute")
        if facts.offset < self.offset:
            raise MigrationError("the source says that it has less than it sent; try again later")
        return facts, facts.offset

    def _take(self, stream: CommandStream, block: bytes) -> None:
        """In a thread."""
        silent = stream.feed(block)
        self._journal.write(block, silent, self._began_at)
        self.changed, stream.changed = self.changed or stream.changed, None
        self.deletes, stream.deletes = self.deletes or stream.deletes, False

    async def _keep(self, stream: CommandStream) -> None:
        with contextlib.suppress(FileNotFoundError):  # it has been ended, and its files are gone
            await _to_end(self._journal.keep, self._began_at + stream.whole, stream.database)


def _settle(
    future: "asyncio.Future[RedisFacts | None]", outcome: RedisFacts | Exception | None
) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


async def _to_end(work: Callable[..., None], *given: object) -> None:
    """In a thread, which is waited for even by who is cancelled: nothing is written afterwards."""
    task = asyncio.ensure_future(in_own_thread(work, *given))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
