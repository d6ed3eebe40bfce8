"""Answers of many pages: each in a short transaction of its own, by whoever still has the right.

A step of such an answer is given a call as the handler was: the credentials were checked anew, the
rights are those of now, and the session is held to the organization. So what has been taken away
ends the answer, whatever its author thought of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from control.boundary.call import Call  # which gives answers that last

    Again: TypeAlias = Callable[[], AbstractContextManager[Call]]

At = TypeVar("At")
Step: TypeAlias = Callable[[Any, At], tuple[str, At | None]]
"""Given a call, what is sent next, and where to go on; None at the end."""


class PageIterator(Iterator[str], Generic[At]):
    """Between two pages it holds nothing; raises the Problem of whoever may not have the next."""

    def __init__(self, again: Again, step: Step[At], begin: At) -> None:
        self._again = again
        self._step = step
        self._at: At | None = begin

    def __next__(self) -> str:
        if self._at is None:
            raise StopIteration
        with self._again() as call:
            text, self._at = self._step(call, self._at)
        return text
