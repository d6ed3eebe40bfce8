"""Clients that have yet to read the end of an answer, from backends that are done with them.

They have no place among an instance's connections any more, which others may need; so that a crowd
of them does not fill the worker, only so many of an instance are waited for.
"""

from collections import defaultdict
from typing import Final, Protocol

OF_ONE_MAX: Final = 50


class Drains(Protocol):
    def cut(self) -> None:
        """Hang up on it now, whatever it has not read."""


class Draining:
    def __init__(self, of_one_max: int = OF_ONE_MAX) -> None:
        self._of_one_max = of_one_max
        # By instance (`Route.counted_as`), the longest there first.
        self._of = defaultdict[str, dict[Drains, None]](dict)
        self._joined: dict[Drains, str] = {}

    def join(self, counted_as: str, member: Drains) -> None:
        self._joined[member] = counted_as
        members = self._of[counted_as]
        members[member] = None
        if len(members) > self._of_one_max:
            next(iter(members)).cut()

    def leave(self, member: Drains) -> None:
        """It may be told so more than once, and of whoever never joined."""
        counted_as = self._joined.pop(member, None)
        if counted_as is not None:
            del self._of[counted_as][member]
            if not self._of[counted_as]:
                del self._of[counted_as]
