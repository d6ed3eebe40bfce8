"""Who takes data of instances by one-time URLs, and when that is over."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from cell.access import network
from cell.backups.sealed_objects import DamagedError
from cell.backups.store import StoreError
from cell.engines.driver import EngineError
from cell.instances.hosted import HostedInstance
from cell.instances.reasons import for_owner
from cell.runtime import log_files
from specserver import Problem, TooManyRequests, Unavailable
from specserver.turns import Together, Turns

log = structlog.get_logger("cell.data_streams")

FAILURES = (EngineError, StoreError, DamagedError, OSError)
TOO_MANY = (
    "too many dumps and downloads at once, of this organization or in this cell; try again when one"
    " of them has ended"
)
RIGHT_ENDED = "the access of whoever requested it has ended"
ROTATED = "the credential was rotated"


@dataclass(eq=False)
class DataStream:
    """One dump or download. It ends with its time, the right to it, and the way of its client.

    `what` is in words for the owner. What is held for it is released when it has ended.
    """

    instance: HostedInstance
    what: str
    address: str
    share: Together
    holder: str = ""
    why_ended: str | None = None
    _held: list[Callable[[], None]] = field(default_factory=list)

    def hold(self, release: Callable[[], None]) -> None:
        """Called once: at the end, or now if that was before."""
        if self.why_ended is None:
            self._held.append(release)
        else:
            release()

    def end(self, why: str) -> None:
        """What it waits for ends, and whoever reads it sees that it is broken off."""
        if self.why_ended is None:
            self.why_ended = why
            while self._held:
                self._held.pop()()

    def limit(self, within_s: float) -> None:
        """From now on."""
        why = f"it took longer than {within_s:.0f} s"
        timer = asyncio.get_running_loop().call_later(within_s, self.end, why)
        self.hold(timer.cancel)

    def _check(self) -> None:
        """Raises EngineError where it may not go on."""
        if self.why_ended is None:
            if self.instance.record.desired == "erased":
                self.end("the instance is being erased")
            try:
                network.check_reach(self.instance.record.spec, self.address)
            except Problem as refused:
                self.end(refused.detail)
        if self.why_ended is not None:
            raise EngineError(self.why_ended)

    async def passed_on(self, first: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """All of them; a Problem breaks the connection, so that nobody takes a part for all."""
        try:
            self._check()
            yield first
            async for chunk in chunks:
                self._check()
                yield chunk
            self._check()
        except FAILURES as error:
            why = for_owner(self.why_ended or str(error))
            log.warning(
                "cell.data_stream_broken_off",
                instance_id=self.instance.instance_id,
                what=self.what,
                reason=why,
            )
            await asyncio.to_thread(self._note, f"{self.what} was broken off: {why}")
            raise Unavailable(f"{self.what} was broken off: {why}") from error

    def _note(self, line: str) -> None:
        """For the owner, to whom a connection that is cut says nothing."""
        if self.instance.site.log.parent.is_dir():
            log_files.write(self.instance.site.log, line)


class DataStreams:
    """Those there are. Each is of a tenant and of a person, who have so many of them at most."""

    def __init__(self, total: int, of_one: int, reserved: int) -> None:
        self._turns = Turns(total, of_one, reserved=reserved)
        self._all: dict[DataStream, None] = {}

    @contextmanager
    def place(self, stream: DataStream) -> Iterator[None]:
        """Kept until it has ended; where what is begun within fails, that is now."""
        if not self._turns.try_enter(stream.share):
            raise TooManyRequests(TOO_MANY, code="too_many_at_once", headers={"Retry-After": "30"})
        self._all[stream] = None
        stream.hold(lambda: self._leave(stream))
        try:
            yield
        except BaseException:
            stream.end("it could not be begun")
            raise

    def _leave(self, stream: DataStream) -> None:
        del self._all[stream]
        self._turns.leave(stream.share)

    def end_all(self, instance_id: str, why: str = ROTATED) -> None:
        for each in list(self._all):
            if each.instance.instance_id == instance_id:
                each.end(why)

    def end_of(self, instance_id: str, holder: str) -> None:
        for each in list(self._all):
            if (each.instance.instance_id, each.holder) == (instance_id, holder):
                each.end(RIGHT_ENDED)

    def holders(self) -> set[tuple[str, str]]:
        """Each instance, and who takes data of it."""
        return {(each.instance.instance_id, each.holder) for each in self._all if each.holder}
