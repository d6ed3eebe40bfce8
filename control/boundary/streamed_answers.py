"""Answers that last: each page in a short transaction of its own, by whoever still has the right.

A step of such an answer is given a call as the handler was: the credentials were checked anew, the
rights are those of now, and the session is held to the organization. So what has been taken away
ends the answer, whatever its author thought of.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import structlog

from specserver import Exchange, Problem

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from control.boundary.call import Call  # which gives answers that last
    from control.boundary.event_listener import EventListener, Follower

    Again: TypeAlias = Callable[[], AbstractContextManager[Call]]

At = TypeVar("At")
Step: TypeAlias = Callable[[Any, At], tuple[str, At | None]]
"""Given a call, what is sent next, and where to go on; None at the end. What is live has none."""

LOOK_EVERY_S: Final = 8.0
"""A right that ends by itself wakes nobody; beyond this time it gives nothing (decision 0028)."""
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


async def follow(
    exchange: Exchange,
    again: Again,
    step: Step[At],
    begin: At,
    *,
    event_listener: EventListener,
    org_id: str,
    first: str,
    for_s: float,
) -> AsyncIterator[str]:
    """What there is after `begin`, and then what comes, until the right ends or the time is up.

    While nothing comes it has neither a thread nor a connection of the database.
    """
    at, ends_at = begin, time.monotonic() + for_s
    with event_listener.following(org_id) as follower:
        yield first
        while time.monotonic() < ends_at:
            follower.forget()
            try:
                text, found = await exchange.in_turn(partial(_look, again, step, at))
            except Problem as problem:
                if problem.status not in _BUSY:
                    _log.info("stream ended", operation=exchange.operation.id, code=problem.code)
                    return
                text, found = "", at
            at = at if found is None else found
            if text:
                yield text
            elif not await _come(follower, ends_at):
                yield KEEP_ALIVE


def _look(again: Again, step: Step[At], at: At) -> tuple[str, At | None]:
    with again() as call:
        text, found = step(call, at)
    if text:
        # On PostgreSQL each query sees the state at its own beginning: the right may have ended
        # after it was looked at, and before what was found then.
        with again():
            pass
    return text, found


async def _come(follower: Follower, ends_at: float) -> bool:
    return await follower.wait(max(0.0, min(LOOK_EVERY_S, ends_at - time.monotonic())))
