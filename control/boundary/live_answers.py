"""Answers that have no end: what comes is sent, for as long as the caller has the right to it.

The right is looked at as for any request when a stream begins, whenever something may have changed
it, and when it ends by itself. Commits are heard in their order, so an event that is heard of was
committed before any change of rights that is not: to send it, nobody needs to ask again. What is
read then is the same for all who see as much, and is read once for all of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import structlog

from control.boundary import failures
from control.boundary.right_ends import left_s
from specserver import Exchange, Problem
from storage import tenancy

if TYPE_CHECKING:
    from collections.abc import Hashable

    from sqlalchemy.orm import Session

    from control.boundary.event_listener import EventListener, WakeNews
    from control.boundary.shared_looks import SharedLooks
    from control.boundary.streamed_answers import Again
    from storage.access.scopes import Within
    from storage.database import Database

KEEP_ALIVE_S: Final = 8.0
"""So long nothing is sent before a comment is, from which both ends see that the other is there."""
LOOK_EVERY_S: Final = 300.0
"""Whatever ends a right wakes the stream, or is a moment that is known; this is for what is not."""
UNTOLD_LOOK_EVERY_S: Final = 4.0
"""While nobody can be told of changes, and for rights whose end is not known beforehand."""
KEEP_ALIVE: Final = ": keep-alive\n\n"
_BUSY: Final = (429, 503)
_log = structlog.get_logger("lasting")


class StreamPlace(NamedTuple):
    """After which number a stream goes on, and whether it has just begun."""

    seq: int
    is_begin: bool = False


@dataclass(frozen=True)
class StreamView:
    """What a step may read and nothing else: of the organization, what is in the scope.

    `up_to`: as far as this number; None: all there is. The session is held to the organization.
    """

    db: Session
    org_id: str
    scope: Within
    up_to: int | None = None


LiveStep: TypeAlias = Callable[[StreamView, StreamPlace], tuple[str, StreamPlace, bool]]
"""What comes after a place: its text, where to go on, and whether there was more than fits."""


@dataclass(frozen=True)
class StreamLook:
    """What a look found: what is sent, where to go on, and whether there is more."""

    text: str
    at: StreamPlace
    has_more: bool


@dataclass(frozen=True)
class RightLook:
    """Besides, what the caller may see, and when that ends by itself."""

    found: StreamLook
    scope: Within
    left_s: float


@dataclass(frozen=True)
class Followed:
    """What a live answer follows, after `begin`, by `step`; whose changes wake it.

    Those of equal `shared_as` and scope are sent the same from the same place on.
    """

    again: Again
    step: LiveStep
    begin: StreamPlace
    database: Database
    org_id: str
    wakers: tuple[str, ...]
    credential_id: str
    shared_as: Hashable
    first: str
    for_s: float


async def follow(
    exchange: Exchange, followed: Followed, event_listener: EventListener, looks: SharedLooks
) -> AsyncIterator[str]:
    """What there is after `begin`, and then what comes, until the right ends or the time is up.

    While nothing comes it has neither a thread nor a connection of the database, and asks nothing
    of it: whoever changes something that rights follow from wakes those whose it is.
    """
    reader = _Reader(exchange, followed, event_listener, looks)
    ends_at = time.monotonic() + followed.for_s
    with event_listener.following(followed.wakers) as follower:
        yield followed.first
        is_due, alive_at = True, time.monotonic() + KEEP_ALIVE_S
        while time.monotonic() < ends_at:
            if is_due:
                try:
                    found = await reader.look(follower.take())
                except Problem as problem:
                    operation = exchange.operation.id
                    _log.info("stream ended", operation=operation, code=problem.code)
                    yield f": ended: {problem.code}\n\n"
                    return
                if found.text:
                    yield found.text
                    alive_at = time.monotonic() + KEEP_ALIVE_S
                if found.has_more:
                    continue
            until = min(reader.look_at, ends_at, alive_at)
            woken = await follower.wait(max(0.0, until - time.monotonic()))
            is_due = woken or time.monotonic() >= reader.look_at
            # Also of a stream that is woken all the time by what is of no concern to it.
            if time.monotonic() >= alive_at:
                yield KEEP_ALIVE
                alive_at = time.monotonic() + KEEP_ALIVE_S


class _Reader:
    """How far a stream has read, and what is known of its caller's right."""

    def __init__(
        self,
        exchange: Exchange,
        followed: Followed,
        event_listener: EventListener,
        looks: SharedLooks,
    ) -> None:
        self._exchange = exchange
        self._followed = followed
        self._event_listener = event_listener
        self._looks = looks
        self._last = StreamLook("", followed.begin, has_more=True)
        self._is_known = False
        self._scope: Within = None
        self.look_at = -math.inf
        """When the right is looked at again, whatever is told until then."""

    async def look(self, told: WakeNews) -> StreamLook:
        """Raises the Problem of whoever has the right no more, and none of a busy service."""
        if told.rights_changed or time.monotonic() >= self.look_at:
            self._is_known = False
        at = self._last.at
        try:
            if self._is_known and told.seq > at.seq:
                self._last = await self._read(told.seq)
            elif not self._is_known or self._last.has_more:
                self._last = await self._ask()
            else:
                self._last = StreamLook("", at, has_more=False)
        except Problem as problem:
            if problem.status not in _BUSY:
                raise
            self._is_known = False
            self._last = StreamLook("", at, has_more=False)
            self.look_at = time.monotonic() + UNTOLD_LOOK_EVERY_S
        return self._last

    async def _ask(self) -> StreamLook:
        """All there is, after a look at the right."""
        followed, at = self._followed, self._last.at
        asked = partial(_look, followed, at)
        of_credential = (followed.credential_id, followed.shared_as, at)
        right = await self._looks.look(of_credential, self._exchange, asked)
        self._is_known, self._scope = True, right.scope
        self.look_at = time.monotonic() + self._next_look_s(right.left_s)
        return right.found

    async def _read(self, up_to: int) -> StreamLook:
        """What was heard of while the right was as it is known."""
        followed, at = self._followed, self._last.at
        read = partial(_read, followed, self._scope, at, up_to)
        of_scope = (followed.org_id, followed.shared_as, self._scope, at, up_to)
        return await self._looks.look(of_scope, self._exchange, read)

    def _next_look_s(self, right_left_s: float) -> float:
        if not self._event_listener.is_listening or right_left_s <= 0:
            return min(UNTOLD_LOOK_EVERY_S, LOOK_EVERY_S)
        return min(right_left_s, LOOK_EVERY_S)


def _look(followed: Followed, at: StreamPlace) -> RightLook:
    with followed.again() as call:
        view = StreamView(call.db, followed.org_id, call.scope)
        found = StreamLook(*followed.step(view, at))
        right = RightLook(found, call.scope, left_s(call))
    if found.text and not followed.database.reads_one_state:
        # Each query has seen the state at its own beginning: the right may have ended after it
        # was looked at, and before what was found then.
        with followed.again():
            pass
    return right


def _read(followed: Followed, scope: Within, at: StreamPlace, up_to: int) -> StreamLook:
    try:
        with followed.database.read() as db:
            tenancy.restrict(db, followed.org_id)
            view = StreamView(db, followed.org_id, scope, up_to)
            return StreamLook(*followed.step(view, at))
    except failures.EXPECTED as error:
        raise failures.as_problem(error) from error
