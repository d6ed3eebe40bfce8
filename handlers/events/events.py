"""Streams of events: what happens in an organization, or to an instance, as it happens."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import orjson

from control.boundary.live_answers import StreamPlace, StreamView
from control.events.envelope import envelope
from control.events.kinds import kinds_of, sent
from control.policy import event_patterns
from handlers.calls import CallerCall, OrgCall
from handlers.events import views
from specserver import Invalid, Reply
from storage.events import events
from storage.events.events import Event
from storage.instances.instances import Instance

PAGE: Final = 50
RETRY_MS: Final = 2_000
"""After which a client is to connect again."""
TOLD_EVERY: Final = 1_000
"""Events of no concern to a stream, after which it is told how far it has come."""
Kinds = frozenset[str] | None


def kinds(call: CallerCall) -> dict[str, Any]:
    """Of the document, so that nothing is said of a kind twice."""
    known = kinds_of(call.exchange.public_document)
    return {"items": [views.event_kind(kind) for kind in known.values()], "next_cursor": None}


def follow(
    call: OrgCall,
    types: Sequence[str] | None = None,
    last_event_id: str | None = None,
    after: str | None = None,
) -> Reply:
    return _live(call, None, _chosen(call, types), last_event_id, after)


def follow_instance(
    call: OrgCall,
    instance: Instance,
    types: Sequence[str] | None = None,
    last_event_id: str | None = None,
    after: str | None = None,
) -> Reply:
    return _live(call, instance.id, _chosen(call, types), last_event_id, after)


def _chosen(call: OrgCall, types: Sequence[str] | None) -> Kinds:
    """The kinds that the patterns ask for; None: all there are."""
    every = kinds_of(call.exchange.public_document)
    known = sent(every, "streams")
    if types is None:
        return None if len(known) == len(every) else known
    faults = event_patterns.faults(types, known)
    if faults:
        raise Invalid(
            faults[0].message if len(faults) == 1 else f"{len(faults)} patterns match nothing",
            code="event_kind_unknown",
            errors=[
                {"parameter": "types", "keyword": "event_kind", "message": fault.message}
                for fault in faults
            ],
        )
    return event_patterns.chosen(types, known)


def _live(
    call: OrgCall, instance_id: str | None, kinds: Kinds, last: str | None, after: str | None
) -> Reply:
    # Whoever connects again by the same URL has read further than it says.
    parameter, begin = ("Last-Event-ID", last) if last is not None else ("after", after)
    if begin is None:
        seq = events.counts(call.db, [call.org.id]).get(call.org.id, 0)
    else:
        seq = _place(call, parameter, begin)
    # An id without data: whoever is cut off before the first event goes on from here too.
    first = f"retry: {RETRY_MS}\n{_reached(seq)}"
    step = partial(_following, instance_id, kinds)
    return call.live(step, StreamPlace(seq, is_begin=True), first, shared_as=(instance_id, kinds))


def _place(call: OrgCall, parameter: str, event_id: str) -> int:
    seq = events.position(call.db, call.org.id, event_id)
    if seq is not None:
        return seq
    message = (
        "must be the id of an event that is still kept; leave it out to receive only new events"
    )
    raise Invalid(
        f"{parameter} {message}",
        code="event_unknown",
        errors=[{"parameter": parameter, "keyword": "cursor", "message": message}],
    )


def _following(
    instance_id: str | None, kinds: Kinds, view: StreamView, at: StreamPlace
) -> tuple[str, StreamPlace, bool]:
    # Before what is found: of what is committed in between, nothing is passed over.
    newest = view.up_to if view.up_to is not None else events.newest(view.db, view.org_id)[0]
    found = _page(instance_id, kinds, view, at.seq)
    text = "".join(map(_sent, found))
    if len(found) == PAGE:
        return text, StreamPlace(found[-1].seq), True
    # What is of no concern here is not read through again at each look.
    sent = found[-1].seq if found else at.seq
    reached = max(sent, newest)
    return text + _passed(at, sent, reached), StreamPlace(reached), False


def _passed(at: StreamPlace, sent: int, reached: int) -> str:
    """Where a stream that has just begun, or has passed many events, has come to."""
    is_far = at.is_begin or at.seq // TOLD_EVERY != reached // TOLD_EVERY
    return _reached(reached) if reached > sent and is_far else ""


def _reached(seq: int) -> str:
    """Moves what a client sends to go on, also where events are of no concern to it."""
    return f"id: {events.place_after(seq)}\n\n"


def _page(instance_id: str | None, kinds: Kinds, view: StreamView, seq: int) -> list[Event]:
    return events.after(
        view.db,
        view.org_id,
        seq,
        scope=view.scope,
        limit=PAGE,
        up_to=view.up_to,
        instance_id=instance_id,
        kinds=kinds,
    )


def _sent(event: Event) -> str:
    return f"id: {event.id}\ndata: {orjson.dumps(envelope(event)).decode()}\n\n"
