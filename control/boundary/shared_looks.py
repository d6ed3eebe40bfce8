"""One look for all who would see the same: streams of one credential at the same place."""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeVar, cast

from specserver import Exchange

Found = TypeVar("Found")
Waiters = list["asyncio.Future[object]"]


class SharedLooks:
    """Of one event loop. Whoever asks for a look joins one that is asked for and has not begun.

    One that has begun may have read already what the newcomer was woken for. A look leaves the
    table on its thread, before it reads: whoever found it there did so before that.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, Waiters] = {}
        self._looking: set[asyncio.Task[None]] = set()

    async def look(self, what: Hashable, exchange: Exchange, look: Callable[[], Found]) -> Found:
        """What `look` gives, or raises; it takes a turn of the caller's for a thread."""
        # Who stops waiting leaves the look to the others: each has a future of its own, which
        # costs less than to shield the look's.
        waiter: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        waiters = self._waiting.get(what)
        if waiters is None:
            waiters = self._waiting[what] = []
            task = asyncio.ensure_future(self._look(what, exchange, look, waiters))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)
        waiters.append(waiter)
        return cast("Found", await waiter)

    async def _look(
        self, what: Hashable, exchange: Exchange, look: Callable[[], object], waiters: Waiters
    ) -> None:
        try:
            found = await exchange.in_turn(partial(self._begin, what, look))
        except asyncio.CancelledError:
            self._settle(what, waiters, lambda each: each.cancel())
            raise
        except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
            self._settle(what, waiters, partial(_fail, error))
        else:
            self._settle(what, waiters, lambda each: each.set_result(found))

    def _begin(self, what: Hashable, look: Callable[[], object]) -> object:
        self._waiting.pop(what, None)
        return look()

    def _settle(
        self, what: Hashable, waiters: Waiters, settle: Callable[["asyncio.Future[object]"], object]
    ) -> None:
        if self._waiting.get(what) is waiters:
            # It got no turn, and has not begun.
            del self._waiting[what]
        for each in waiters:
            if not each.done():
                settle(each)


def _fail(error: Exception, waiter: "asyncio.Future[object]") -> None:
    waiter.set_exception(error)
