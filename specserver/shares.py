"""Owns how the callers of an app share its threads, and the long polls that it holds."""

import contextlib
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import TypeVar

from specserver.exchange import Exchange
from specserver.turns import Turns, too_many_at_once

LONG_POLLS = 2_000

Found = TypeVar("Found")


class Shares:
    """`whose` tells whose share a request takes, before it is known who calls.

    Of `threads` a caller has half at most, as `Turns` deals them; `waiting` more of its requests
    wait for one, and `long_polls` of them may wait for something to come.
    """

    def __init__(
        self,
        whose: Callable[[Exchange], Hashable],
        *,
        threads: int,
        waiting: int = 128,
        long_polls: int = 100,
    ) -> None:
        self._whose = whose
        self._turns = Turns(threads, max(1, threads // 2), waiting_of_one=waiting)
        self._long_polls = Turns(LONG_POLLS, long_polls)
        self._long_polls_of_one = long_polls

    async def turn(self, exchange: Exchange, work: Callable[[], Awaitable[Found]]) -> Found:
        """Begins the work when a thread is the caller's to take."""
        whose = self._whose(exchange)
        await self._turns.enter(whose)
        try:
            return await work()
        finally:
            self._turns.leave(whose)

    @contextlib.contextmanager
    def long_poll(self, exchange: Exchange) -> Iterator[None]:
        whose = self._whose(exchange)
        if not self._long_polls.try_enter(whose):
            raise too_many_at_once(f"{self._long_polls_of_one} long polls are open")
        try:
            yield
        finally:
            self._long_polls.leave(whose)
