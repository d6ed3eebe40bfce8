"""What a batch has: entries of three streams by the time, each stream in its order and whole."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import orjson
from sqlalchemy.orm import Session

from control.siem import ocsf
from control.siem.told import AUDIT, EGRESS, GAP, Told
from storage.events import audit, egress, events
from storage.events.audit import AuditEntry
from storage.events.siem_deliveries import SiemDelivery, StreamPositions

LINES_MAX: Final = 500
BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True)
class Lines:
    """Lines of JSON, and the position after them. `is_full`: more may follow at once."""

    content: bytes
    count: int
    first_at: datetime
    to: StreamPositions
    is_full: bool


def read(db: Session, delivery: SiemDelivery) -> Lines | None:
    """What follows the delivery's position: that of the batch that was begun, or the next.

    A batch that is read again has the same bytes, as long as its entries are kept. What is not is
    told as a gap, before the next entry of its stream.
    """
    until = None if delivery.batch_to is None else StreamPositions(*delivery.batch_to)
    told = list(_told(db, delivery, until))
    if not told:
        return None
    written, size, taken = [], 0, 0
    at = delivery.position
    for one in told:
        lines = [_written(each, delivery.format) for each in (*_gap(one, at), one)]
        more = sum(map(len, lines))
        if until is None and taken and (taken >= LINES_MAX or size + more > BYTES_MAX):
            break
        written += lines
        size += more
        taken += 1
        at = replace(at, **{one.stream: one.seq})
    is_full = taken < len(told) or taken >= LINES_MAX
    return Lines(b"".join(written), len(written), told[0].time, at, is_full)


def _told(db: Session, delivery: SiemDelivery, until: StreamPositions | None) -> Iterable[Told]:
    """By the time, and no stream out of its order: whatever comes first is its stream's next."""
    org_id, at = delivery.org_id, delivery.position
    streams = (
        (_of_entry(each) for each in audit.sealed_after(db, org_id, at.audit, LINES_MAX)),
        (
            Told("events", each.seq, each.id, each.type, each.time, org_id, each.data)
            for each in events.after(db, org_id, at.events, scope=None, limit=LINES_MAX)
        ),
        (
            Told("egress", each.seq, each.id, EGRESS, each.time, org_id, each.data)
            for each in egress.after(db, org_id, at.egress, LINES_MAX)
        ),
    )
    return heapq.merge(*(_up_to(each, until) for each in streams), key=lambda one: one.time)


def _up_to(told: Iterable[Told], until: StreamPositions | None) -> Iterator[Told]:
    for one in told:
        if until is not None and one.seq > getattr(until, one.stream):
            return
        yield one


def _of_entry(entry: AuditEntry) -> Told:
    assert entry.org_id is not None
    assert entry.seq is not None
    names = ("action", "actor_kind", "actor_id", "target", "request_id", "ip", "detail", "seq")
    data = {name: getattr(entry, name) for name in (*names, "hash")}
    return Told("audit", entry.seq, entry.id, AUDIT, entry.created_at, entry.org_id, data)


def _gap(one: Told, at: StreamPositions) -> Iterator[Told]:
    """What was forgotten before it could be sent is told, in its place."""
    last: int = getattr(at, one.stream)
    if one.seq <= last + 1:
        return
    data: dict[str, Any] = {"stream": one.stream, "first_seq": last + 1, "last_seq": one.seq - 1}
    data["reason"] = "these were no longer kept when they could be sent"
    id_ = f"gap_{one.stream}_{last + 1}_{one.seq - 1}"
    yield replace(one, id=id_, type=GAP, data=data)


def _written(one: Told, format_: str) -> bytes:
    shown = ocsf.event(one) if format_ == "ocsf" else one.envelope
    return orjson.dumps(shown, option=orjson.OPT_APPEND_NEWLINE)
