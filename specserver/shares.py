"""Owns how the callers of an app share its threads, its memory and the long polls it holds."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Iterator
from functools import partial
from typing import Self, TypeVar

from specserver.bodies import ClientGone
from specserver.exchange import Exchange
from specserver.lines import Nested
from specserver.problems import Problem, Unavailable
from specserver.turns import Turns, too_many_at_once

LONG_POLLS = 2_000
# A page of each is in memory while it is sent.
DOWNLOADS = 64
DOWNLOADS_OF_ONE = 4
LIVE_STREAMS = 6_000
WAITING = 1_024
HEAVY = 2
HEAVY_WAITING_OF_ONE = 16
# So much of every body is let in: it is no more than the server reads of a connection anyway.
BLOCK_BYTES = 16_384
BODY_BLOCKS = 64 * 1_048_576 // BLOCK_BYTES
BODY_BLOCKS_OF_ONE = BODY_BLOCKS // 4

Found = TypeVar("Found")
Gone = Callable[[], Awaitable[None]]


class Stranger(Nested):
    """A caller whose credentials have not been accepted before: their networks, and address."""

    __slots__ = ()

    def __new__(cls, *levels: str) -> Self:
        return super().__new__(cls, levels)


class Pool:
    """Places of which strangers together have half, so that they keep nobody else out."""

    def __init__(self, places: int, of_one: int, *, waiting_of_one: int = 0) -> None:
        half = max(1, places // 2)
        self._all = Turns(places, of_one, waiting_of_one=waiting_of_one, waiting=WAITING)
        self._of_strangers = Turns(
            half, min(of_one, half), waiting_of_one=waiting_of_one, waiting=WAITING // 2
        )

    async def enter(self, caller: Hashable) -> None:
        if not isinstance(caller, Stranger):
            await self._all.enter(caller)
            return
        await self._of_strangers.enter(caller)
        try:
            await self._all.enter(caller)
        except BaseException:
            self._of_strangers.leave(caller)
            raise

    def try_enter(self, caller: Hashable) -> bool:
        if not isinstance(caller, Stranger):
            return self._all.try_enter(caller)
        if not self._of_strangers.try_enter(caller):
            return False
        if not self._all.try_enter(caller):
            self._of_strangers.leave(caller)
            return False
        return True

    def leave(self, caller: Hashable) -> None:
        self._all.leave(caller)
        if isinstance(caller, Stranger):
            self._of_strangers.leave(caller)


class Shares:
    """`whose` tells whose share a request takes, before it is known who calls.

    It gives a `Stranger` until it has seen the caller's credentials accepted.
    Of `threads` a caller has half at most, as `Turns` deals them; `waiting` more of its requests
    wait for one, `long_polls` of them may wait for something to come, and `live_streams` may be
    open. Strangers together have half of the threads, and half of the memory for bodies. Of the
    requests that `is_heavy` says take much of a CPU, two are worked on at once, and one of
    strangers; the others hold no thread.
    """

    def __init__(
        self,
        whose: Callable[[Exchange], Hashable],
        *,
        threads: int,
        waiting: int = 128,
        long_polls: int = 100,
        live_streams: int = 50,
        is_heavy: Callable[[Exchange], bool] = lambda _exchange: False,
    ) -> None:
        self._whose = whose
        self._is_heavy = is_heavy
        self._heavy = Pool(HEAVY, 1, waiting_of_one=HEAVY_WAITING_OF_ONE)
        self._threads = Pool(threads, max(1, threads // 2), waiting_of_one=waiting)
        self._long_polls = Turns(LONG_POLLS, long_polls)
        self._long_polls_of_one = long_polls
        self._downloads = Turns(DOWNLOADS, DOWNLOADS_OF_ONE)
        self._live = Turns(LIVE_STREAMS, live_streams)
        self._live_of_one = live_streams
        self._blocks = Pool(BODY_BLOCKS, BODY_BLOCKS_OF_ONE)

    async def turn(
        self,
        exchange: Exchange,
        work: Callable[[], Awaitable[Found]],
        gone: Gone | None = None,
    ) -> Found:
        """Begins the work when a thread is the caller's to take.

        With `gone`, which returns when the client has hung up, ClientGone ends the wait for that:
        whoever asks and does not stay for the answer makes nobody else wait for theirs.
        """
        whose = self._whose(exchange)
        if not self._is_heavy(exchange):
            return await self._in_turn(whose, work, gone)
        await _enter(self._heavy, whose, gone)
        try:
            return await self._in_turn(whose, work, gone)
        finally:
            self._heavy.leave(whose)

    async def _in_turn(
        self, whose: Hashable, work: Callable[[], Awaitable[Found]], gone: Gone | None
    ) -> Found:
        await _enter(self._threads, whose, gone)
        try:
            return await work()
        finally:
            self._threads.leave(whose)

    @contextlib.contextmanager
    def long_poll(self, exchange: Exchange) -> Iterator[None]:
        whose = self._whose(exchange)
        if not self._long_polls.try_enter(whose):
            raise too_many_at_once(f"{self._long_polls_of_one} long polls are open")
        try:
            yield
        finally:
            self._long_polls.leave(whose)

    def stream(self, exchange: Exchange, *, live: bool) -> Callable[[], None]:
        """A place for an answer that is streamed; what is given back leaves it."""
        whose = self._whose(exchange)
        places = self._live if live else self._downloads
        if not places.try_enter(whose):
            raise too_many_at_once(
                f"{self._live_of_one} live streams are open"
                if live
                else f"{DOWNLOADS_OF_ONE} downloads are under way"
            )
        return partial(places.leave, whose)

    def body(self, exchange: Exchange) -> "BodyShare":
        return BodyShare(self._blocks, self._whose(exchange))


class BodyShare:
    """What one request's body takes of the memory for bodies, until it is answered."""

    def __init__(self, blocks: Pool, caller: Hashable) -> None:
        self._blocks = blocks
        self._caller = caller
        self._held = 0

    def grow(self, size: int) -> None:
        """Raises where the body, now of this size, is more than its caller can have."""
        while size > BLOCK_BYTES * (self._held + 1):
            if not self._blocks.try_enter(self._caller):
                raise _bodies_full()
            self._held += 1

    def end(self) -> None:
        while self._held:
            self._held -= 1
            self._blocks.leave(self._caller)


async def _enter(pool: Pool, whose: Hashable, gone: Gone | None) -> None:
    """Raises ClientGone, with no place taken, where the client hangs up before there is one."""
    if gone is None:
        await pool.enter(whose)
        return
    if pool.try_enter(whose):
        return
    entering = asyncio.ensure_future(pool.enter(whose))
    leaving = asyncio.ensure_future(gone())
    try:
        await asyncio.wait({entering, leaving}, return_when=asyncio.FIRST_COMPLETED)
    except BaseException:
        await _withdraw(pool, whose, entering)
        raise
    finally:
        is_gone = leaving.done()
        leaving.cancel()
    if is_gone:
        await _withdraw(pool, whose, entering)
        raise ClientGone
    entering.result()


async def _withdraw(pool: Pool, whose: Hashable, entering: "asyncio.Future[None]") -> None:
    """From the line, or from the place that was found meanwhile."""
    entering.cancel()
    await asyncio.wait({entering})
    if not entering.cancelled() and entering.exception() is None:
        pool.leave(whose)


def _bodies_full() -> Problem:
    # The rest of the body stays unread, so the connection is of no more use.
    return Unavailable(
        f"too many large request bodies are arriving; bodies up to {BLOCK_BYTES} bytes are always"
        " read; try again when some of yours have been answered",
        code="overloaded",
        headers={"Retry-After": "1", "Connection": "close"},
    )
