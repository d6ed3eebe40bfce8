"""One look for all who would see the same: streams of one credential at the same place."""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeVar, cast

from specserver import Exchange

Found = TypeVar("Found")


class SharedLooks:
    """Of one event loop. Whoever asks for a look joins one that is asked for and has not begun.

    One that has begun may have read already what the newcomer was woken for. A look leaves the
    table on its thread, before it reads: whoever found it there did so before that.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Future[object]] = {}

    async def look(self, what: Hashable, exchange: Exchange, look: Callable[[], Found]) -> Found:
        """What `look` gives, or raises; it takes a turn of the caller's for a thread."""
        shared = self._waiting.get(what)
        if shared is None:
            begun = partial(self._begin, what, look)
            shared = self._waiting[what] = asyncio.ensure_future(exchange.in_turn(begun))
            # Where it gets no turn it never begins.
            shared.add_done_callback(partial(self._forget, what))
        # Who stops waiting leaves the look to the others.
        return cast("Found", await asyncio.shield(shared))

    def _begin(self, what: Hashable, look: Callable[[], Found]) -> Found:
        self._waiting.pop(what, None)
        return look()

    def _forget(self, what: Hashable, done: "asyncio.Future[object]") -> None:
        if self._waiting.get(what) is done:
            del self._waiting[what]
        if not done.cancelled():
            # Or a failure that nobody waits for any more would be logged as forgotten.
            done.exception()
