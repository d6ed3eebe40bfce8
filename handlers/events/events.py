"""Streams of events: what happens in an organization, or to an instance, as it happens."""

from functools import partial
from typing import Final

import orjson

from control.events.envelope import envelope
from handlers.calls import OrgCall
from specserver import Invalid, Reply
from storage.events import events
from storage.events.events import Event
from storage.instances.instances import Instance

PAGE: Final = 50
RETRY_MS: Final = 2_000
"""After which a client is to connect again."""


def follow(call: OrgCall, last_event_id: str | None = None) -> Reply:
    return _live(call, None, last_event_id)


def follow_instance(call: OrgCall, instance: Instance, last_event_id: str | None = None) -> Reply:
    return _live(call, instance.id, last_event_id)


def _live(call: OrgCall, instance_id: str | None, last: str | None) -> Reply:
    seq, event_id = events.newest(call.db, call.org.id) if last is None else _place(call, last)
    # An id without data: whoever is cut off before the first event goes on from here too.
    first = f"retry: {RETRY_MS}\nid: {event_id}\n\n"
    return call.live(partial(_following, instance_id), seq, first)


def _place(call: OrgCall, event_id: str) -> tuple[int, str]:
    seq = events.position(call.db, call.org.id, event_id)
    if seq is not None:
        return seq, event_id
    message = (
        "must be the id of an event that is still kept; leave it out to receive only new events"
    )
    raise Invalid(
        f"Last-Event-ID {message}",
        code="event_unknown",
        errors=[{"parameter": "Last-Event-ID", "keyword": "cursor", "message": message}],
    )


def _following(instance_id: str | None, call: OrgCall, seq: int) -> tuple[str, int]:
    found = events.after(
        call.db, call.org.id, seq, scope=call.scope, limit=PAGE, instance_id=instance_id
    )
    return "".join(map(_sent, found)), found[-1].seq if found else seq


def _sent(event: Event) -> str:
    return f"id: {event.id}\ndata: {orjson.dumps(envelope(event)).decode()}\n\n"
