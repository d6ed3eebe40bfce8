"""Answers that last: each page in a short transaction of its own, by whoever still has the right.

A step of such an answer is given a call as the handler was: the credentials were checked anew, the
rights are those of now, and the session is held to the organization. So what has been taken away
ends the answer, whatever its author thought of.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import structlog

from control.boundary.right_ends import left_s
from specserver import Exchange, Problem

if TYPE_CHECKING:
    from collections.abc import Hashable
    from contextlib import AbstractContextManager

    from control.boundary.call import Call  # which gives answers that last
    from control.boundary.event_listener import EventListener
    from control.boundary.shared_looks import SharedLooks

    Again: TypeAlias = Callable[[], AbstractContextManager[Call]]

At = TypeVar("At")
Step: TypeAlias = Callable[[Any, At], tuple[str, At | None]]
"""Given a call, what is sent next, and where to go on; None at the end."""
LiveStep: TypeAlias = Callable[[Any, At], tuple[str, At, bool]]
"""What is live has no end: beside where to go on, whether there was more than fits."""

KEEP_ALIVE_S: Final = 8.0
"""So long nothing is sent before a comment is, from which both ends see that the other is there."""
LOOK_EVERY_S: Final = 300.0
"""Whatever ends a right wakes the stream, or is a moment that is known; this is for what is not."""
UNTOLD_LOOK_EVERY_S: Final = 4.0
"""While nobody can be told of changes, and for rights whose end is not known beforehand."""
KEEP_ALIVE: Final = ": keep-alive\n\n"
_BUSY: Final = (429, 503)
_log = structlog.get_logger("lasting")


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


@dataclass(frozen=True)
class StreamLook(Generic[At]):
    """What a look found: what is sent, where to go on, and when the right ends by itself."""

    text: str
    at: At
    has_more: bool
    right_left_s: float


@dataclass(frozen=True)
class Followed(Generic[At]):
    """What a live answer follows, after `begin`, by `step`; whose changes wake it.

    Those of equal `shared_as` are sent the same from the same place on, so that one look is for
    all of them.
    """

    again: Again
    step: LiveStep[At]
    begin: At
    wakers: tuple[str, ...]
    shared_as: Hashable
    first: str
    for_s: float


async def follow(
    exchange: Exchange, followed: Followed[At], event_listener: EventListener, looks: SharedLooks
) -> AsyncIterator[str]:
    """What there is after `begin`, and then what comes, until the right ends or the time is up.

    While nothing comes it has neither a thread nor a connection of the database, and asks nothing
    of it: whoever changes something that rights follow from wakes those whose it is.
    """
    at, ends_at = followed.begin, time.monotonic() + followed.for_s
    with event_listener.following(followed.wakers) as follower:
        yield followed.first
        is_due, look_at, alive_at = True, math.inf, time.monotonic() + KEEP_ALIVE_S
        while time.monotonic() < ends_at:
            if is_due:
                follower.forget()
                try:
                    look = partial(_look, followed.again, followed.step, at)
                    found = await looks.look((followed.shared_as, at), exchange, look)
                except Problem as problem:
                    if problem.status not in _BUSY:
                        operation = exchange.operation.id
                        _log.info("stream ended", operation=operation, code=problem.code)
                        yield f": ended: {problem.code}\n\n"
                        return
                    found = StreamLook("", at, False, 0.0)
                at = found.at
                if found.text:
                    yield found.text
                    alive_at = time.monotonic() + KEEP_ALIVE_S
                if found.has_more:
                    continue
                look_at = time.monotonic() + _next_look_s(found, event_listener.is_listening)
            until = min(look_at, ends_at, alive_at)
            woken = await follower.wait(max(0.0, until - time.monotonic()))
            is_due = woken or time.monotonic() >= look_at
            # Also of a stream that is woken all the time by what is of no concern to it.
            if time.monotonic() >= alive_at:
                yield KEEP_ALIVE
                alive_at = time.monotonic() + KEEP_ALIVE_S


def _next_look_s(found: StreamLook[Any], is_listening: bool) -> float:
    if not is_listening or found.right_left_s <= 0:
        return min(UNTOLD_LOOK_EVERY_S, LOOK_EVERY_S)
    return min(found.right_left_s, LOOK_EVERY_S)


def _look(again: Again, step: LiveStep[At], at: At) -> StreamLook[At]:
    with again() as call:
        text, found, has_more = step(call, at)
        right_left_s = left_s(call)
    if text and not call.services.database.reads_one_state:
        # Each query has seen the state at its own beginning: the right may have ended after it
        # was looked at, and before what was found then.
        with again():
            pass
    return StreamLook(text, found, has_more, right_left_s)
