"""Owns how a pool is shared: nobody has so much of it that others are not served.

On one event loop, without a lock: what is usual costs a look-up and a comparison.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable

from specserver.lines import Levels, Line, Nested, Turn, levels_of
from specserver.problems import Problem, TooManyRequests, Unavailable

_RETRY = {"Retry-After": "1"}


class Together(tuple[Hashable, ...]):
    """A caller that counts as several, as a person and an organization, each with its own share."""

    __slots__ = ()


class Turns:
    """Places of a pool. A caller has `of_one` at most, and never more than are free besides.

    So a pool that is nearly full is open only to who has little of it. The last `reserved` places
    go to callers that have none, one to each. Who finds no place waits, where waiting is allowed;
    callers then take turns, however many requests each of them has.
    Where all that may wait do, whoever has fewer waiting replaces the latest of who has most.
    For a `Nested` caller all of this holds at each level: first among networks, then within one.
    """

    def __init__(
        self,
        places: int,
        of_one: int,
        *,
        waiting_of_one: int = 0,
        waiting: int = 1024,
        reserved: int = 0,
    ) -> None:
        self._places = places
        self._of_one = of_one
        self._reserved = reserved
        self._waiting_of_one = waiting_of_one
        self._waiting_all = waiting
        self._taken = 0
        self._held: dict[Hashable, int] = {}
        self._line = Line()

    def try_enter(self, caller: Hashable) -> bool:
        if self._line.of(levels_of(caller)) or not self._has_place(caller):
            return False
        self._take(caller)
        return True

    async def enter(self, caller: Hashable) -> None:
        """Raises the problem of a caller, or of a service, that has too many waiting already."""
        if self.try_enter(caller):
            return
        levels = levels_of(caller)
        if self._line.of(levels) >= self._waiting_of_one:
            raise too_many_at_once(f"{self._waiting_of_one} requests are already waiting")
        if self._line.size >= self._waiting_all:
            self._make_room(levels)
        turn: Turn = asyncio.get_running_loop().create_future()
        self._line.add(levels, turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._forget(caller, turn)
            raise

    @contextlib.asynccontextmanager
    async def turn(self, caller: Hashable) -> AsyncIterator[None]:
        await self.enter(caller)
        try:
            yield
        finally:
            self.leave(caller)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits for a place."""
        return self._line.size > 0

    def leave(self, caller: Hashable) -> None:
        for name in _names(caller):
            held = self._held[name] - 1
            if held:
                self._held[name] = held
            else:
                del self._held[name]
        self._taken -= 1
        if self._line.size:
            self._let_in()

    def _has_place(self, caller: Hashable) -> bool:
        free = self._places - self._taken
        most = min(self._of_one, free if free > self._reserved else 1, free)
        return all(self._held.get(name, 0) < most for name in _names(caller))

    def _take(self, caller: Hashable) -> None:
        for name in _names(caller):
            self._held[name] = self._held.get(name, 0) + 1
        self._taken += 1

    def _let_in(self) -> None:
        while self._taken < self._places and (found := self._line.next(self._has_place)):
            caller, turn = found
            if not turn.cancelled():
                turn.set_result(None)
                self._take(caller)

    def _make_room(self, newcomer: Levels) -> None:
        """Raises where nobody has more waiting than the newcomer would have with this one."""
        latest = self._line.make_room(newcomer)
        if latest is None:
            raise overloaded()
        if not latest.cancelled():
            latest.set_exception(overloaded())

    def _forget(self, caller: Hashable, turn: Turn) -> None:
        if turn.cancelled():
            self._line.remove(levels_of(caller), turn)
        elif turn.exception() is None:
            self.leave(caller)  # its turn had come


def _names(caller: Hashable) -> tuple[Hashable, ...]:
    if isinstance(caller, Nested):
        return levels_of(caller)
    return caller if isinstance(caller, Together) else (caller,)


def too_many_at_once(allowed: str) -> Problem:
    detail = (
        f"too many requests at once: {allowed} for this organization or caller;"
        " try again when some of them have been answered"
    )
    return TooManyRequests(detail, code="too_many_at_once", headers=_RETRY)


def overloaded() -> Problem:
    return Unavailable("too many requests are waiting", code="overloaded", headers=_RETRY)
