"""Owns the order of those who wait for a pool: they take turns at each level, as of networks."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable

Turn = asyncio.Future[None]
Levels = tuple[Hashable, ...]


class Nested(Levels):
    """A caller within others, widest first, as an address in its network: each counts as one."""

    __slots__ = ()


class Line:
    """A level: at each, callers take turns, and whoever has most there is the first to give way."""

    def __init__(self, whom: Hashable = None) -> None:
        self.size = 0
        self._whom = whom
        self._below: dict[Hashable, Line] = {}
        self._turns: deque[Turn] = deque()

    def of(self, levels: Levels) -> int:
        """How many wait there."""
        if not levels:
            return self.size
        line = self._below.get(levels[0])
        return line.of(levels[1:]) if line else 0

    def add(self, levels: Levels, turn: Turn) -> None:
        self.size += 1
        if levels:
            self._below.setdefault(levels[0], Line(levels[0])).add(levels[1:], turn)
        else:
            self._turns.append(turn)

    def remove(self, levels: Levels, turn: Turn) -> bool:
        if levels:
            line = self._below.get(levels[0])
            if line is None or not line.remove(levels[1:], turn):
                return False
            self._shrink(levels[0])
            return True
        if turn not in self._turns:
            return False
        self._turns.remove(turn)
        self.size -= 1
        return True

    def next(self, has_place: Callable[[Hashable], bool]) -> tuple[Hashable, Turn] | None:
        """Takes out whose turn it is; their network, and they in it, are the last from then on."""
        if self._turns:
            self.size -= 1
            return self._whom, self._turns.popleft()
        for level, line in list(self._below.items()):
            found = line.next(has_place) if has_place(level) else None
            if found is not None:
                self._shrink(level)
                if level in self._below:
                    self._below[level] = self._below.pop(level)
                return found
        return None

    def make_room(self, newcomer: Levels) -> Turn | None:
        """Takes out the latest of who has most, where the newcomer has fewer even with this one."""
        if not newcomer:
            return None
        own = self._below.get(newcomer[0])
        if self._below[self._most()].size > (own.size if own else 0) + 1:
            return self.latest()
        turn = own.make_room(newcomer[1:]) if own else None
        if turn is not None:
            self._shrink(newcomer[0])
        return turn

    def latest(self) -> Turn:
        """Takes out the latest of who has most."""
        if self._turns:
            self.size -= 1
            return self._turns.pop()
        most = self._most()
        turn = self._below[most].latest()
        self._shrink(most)
        return turn

    def _most(self) -> Hashable:
        """Of equals, who is asked last."""
        return max(reversed(self._below), key=lambda level: self._below[level].size)

    def _shrink(self, level: Hashable) -> None:
        """One that was below has left, by this level."""
        self.size -= 1
        if not self._below[level].size:
            del self._below[level]


def levels_of(caller: Hashable) -> Levels:
    """The caller, and before it those that it is within."""
    if not isinstance(caller, Nested):
        return (caller,)
    return tuple(Nested(caller[: depth + 1]) for depth in range(len(caller)))
