"""Deliveries: what was sent of an event to a webhook endpoint, and what came back.

There is a row from the first attempt on; events before that are what the endpoint's lane has left.
A delivery without an endpoint is one of an endpoint that was deleted, and goes soon.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    ForeignKey,
    Index,
    and_,
    exists,
    func,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.columns import Json, Owned, Record, one_of
from storage.errors import RecordNotFound
from storage.events.events import Event
from storage.events.webhook_endpoints import WebhookEndpoint
from storage.lookups import by_key, delete_oldest, delete_some
from storage.pages import Page

STATUSES: Final = ("pending", "succeeded", "failed", "dropped")
ATTEMPTS_KEPT: Final = 50
PING: Final = "webhook.ping.v1"
"""The event of a test, which only the endpoint under test gets."""


class WebhookDelivery(Owned, Record):
    """`next_attempt_at` is set while it is pending; `until` when it is tried for the last time.

    `failures` counts those since it was (re)delivered, `attempt_count` all attempts, of which
    `attempts` has the newest ones. Whoever tries it again holds it by the number `lease`.
    """

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        one_of("status", STATUSES),
        Index(None, "webhook_id", "id"),
        Index(None, "webhook_id", "next_attempt_at"),
        Index(None, "org_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    # No foreign key: see forget_orphans.
    webhook_id: Mapped[str]
    event_id: Mapped[str]
    event_type: Mapped[str]
    status: Mapped[str]
    attempts: Mapped[list[dict[str, Any]]] = mapped_column(Json, default=list)
    attempt_count: Mapped[int] = mapped_column(default=0)
    failures: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime | None]
    until: Mapped[datetime]
    lease: Mapped[int] = mapped_column(BigInteger, default=0)

    def note(self, attempt: dict[str, Any], *, success: bool, next_at: datetime | None) -> None:
        """What came of an attempt; it is pending while there is a next one."""
        self.attempts = [*self.attempts, attempt][-ATTEMPTS_KEPT:]
        self.attempt_count += 1
        self.failures += not success
        self.next_attempt_at = next_at
        self.status = "succeeded" if success else "pending" if next_at else "failed"

    def give_up(self) -> None:
        """What was to be sent is no longer kept."""
        self.status, self.next_attempt_at = "failed", None

    def redeliver(self, now: datetime, horizon: timedelta) -> None:
        """Send it again now, and if that fails as if it had never been sent."""
        self.status, self.failures = "pending", 0
        self.next_attempt_at, self.until = now, now + horizon
        self.lease += 1


@dataclass(frozen=True)
class DeliveryFilter:
    status: str | None = None
    event_type: str | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        wanted = {WebhookDelivery.status: self.status, WebhookDelivery.event_type: self.event_type}
        return [column == value for column, value in wanted.items() if value is not None]


def insert_all(db: Session, rows: Iterable[dict[str, Any]]) -> None:
    """Many at once; each with all of its columns, and an id of `new_id`."""
    listed = list(rows)
    if listed:
        db.execute(insert(WebhookDelivery), listed)


def new_id() -> str:
    return identifiers.new("whd_")


def ping(db: Session, endpoint: WebhookEndpoint, now: datetime) -> WebhookDelivery:
    """A test that is due now, and is made once."""
    made = WebhookDelivery(
        id=new_id(),
        org_id=endpoint.org_id,
        webhook_id=endpoint.id,
        event_id=identifiers.new("evt_"),
        event_type=PING,
        status="pending",
        next_attempt_at=now,
        until=now,
        created_at=now,
    )
    db.add(made)
    db.flush()
    return made


def fetch(
    db: Session, endpoint: WebhookEndpoint, delivery_id: str, *, lock: bool = False
) -> WebhookDelivery:
    found = by_key(db, WebhookDelivery, delivery_id, lock=lock)
    if found is None or found.webhook_id != endpoint.id:
        raise RecordNotFound("delivery not found")
    return found


def page(
    db: Session,
    endpoint: WebhookEndpoint,
    chosen: DeliveryFilter,
    *,
    limit: int,
    after: str | None,
) -> Page[WebhookDelivery]:
    """Those of the endpoint, newest first."""
    rows = select(WebhookDelivery).where(
        WebhookDelivery.webhook_id == endpoint.id, *chosen.conditions()
    )
    return pages.keyset(db, rows, WebhookDelivery.id, limit=limit, after=after)


def redeliver_span(
    db: Session,
    endpoint: WebhookEndpoint,
    since: datetime,
    until: datetime,
    statuses: Collection[str],
    now: datetime,
    horizon: timedelta,
) -> int:
    """All of the span with one of the statuses, tests left out; how many."""
    values = {
        "status": "pending",
        "failures": 0,
        "next_attempt_at": now,
        "until": now + horizon,
        "lease": WebhookDelivery.lease + 1,
    }
    found = update(WebhookDelivery).where(
        WebhookDelivery.webhook_id == endpoint.id,
        WebhookDelivery.id >= identifiers.first_of("whd_", since),
        WebhookDelivery.id < identifiers.first_of("whd_", until),
        WebhookDelivery.status.in_(statuses),
        WebhookDelivery.event_type != PING,
    )
    return len(db.execute(found.values(values).returning(WebhookDelivery.id)).all())


def count_span(
    db: Session,
    endpoint: WebhookEndpoint,
    since: datetime,
    until: datetime,
    statuses: Collection[str],
) -> int:
    rows = select(func.count()).where(
        WebhookDelivery.webhook_id == endpoint.id,
        WebhookDelivery.id >= identifiers.first_of("whd_", since),
        WebhookDelivery.id < identifiers.first_of("whd_", until),
        WebhookDelivery.status.in_(statuses),
        WebhookDelivery.event_type != PING,
    )
    return db.scalars(rows).one()


def drop_pending(db: Session, endpoint: WebhookEndpoint) -> int:
    """They are sent no more; how many there were."""
    values = {
        "status": "dropped",
        "next_attempt_at": None,
        "lease": WebhookDelivery.lease + 1,
    }
    pending = update(WebhookDelivery).where(
        WebhookDelivery.webhook_id == endpoint.id, WebhookDelivery.next_attempt_at.is_not(None)
    )
    return len(db.execute(pending.values(values).returning(WebhookDelivery.id)).all())


def take_due(
    db: Session, endpoint_id: str, now: datetime, limit: int, again_at: datetime
) -> list[tuple[WebhookDelivery, Event | None]]:
    """Deliveries that are due, with their events; others may take them from `again_at` on."""
    rows = (
        select(WebhookDelivery, Event)
        .outerjoin(Event, Event.id == WebhookDelivery.event_id)
        .where(WebhookDelivery.webhook_id == endpoint_id, WebhookDelivery.next_attempt_at <= now)
        .order_by(WebhookDelivery.next_attempt_at, WebhookDelivery.id)
        .limit(limit)
    )
    found: list[tuple[WebhookDelivery, Event | None]] = list(db.execute(rows).tuples())
    for delivery, _ in found:
        delivery.lease += 1
        delivery.next_attempt_at = again_at
    return found


def next_due(db: Session, endpoint_id: str) -> datetime | None:
    """When the next of its deliveries is due."""
    rows = select(WebhookDelivery.next_attempt_at).where(
        WebhookDelivery.webhook_id == endpoint_id, WebhookDelivery.next_attempt_at.is_not(None)
    )
    return db.scalar(rows.order_by(WebhookDelivery.next_attempt_at).limit(1))


def held(db: Session, leases: Sequence[tuple[str, int]]) -> dict[str, WebhookDelivery]:
    """Those that are still held by these numbers."""
    rows = select(WebhookDelivery).where(
        tuple_(WebhookDelivery.id, WebhookDelivery.lease).in_(leases)
    )
    found = db.scalars(rows.execution_options(populate_existing=True))
    return {one.id: one for one in found}


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those begun before that moment, oldest first; how many went."""
    ended = WebhookDelivery.next_attempt_at.is_(None)
    return delete_oldest(db, WebhookDelivery.id, "whd_", before, limit, ended)


def forget_orphans(db: Session, limit: int) -> int:
    """Delete at most `limit` of endpoints that were deleted; how many went."""
    has_endpoint = exists().where(WebhookEndpoint.id == WebhookDelivery.webhook_id)
    return delete_some(db, WebhookDelivery, and_(~has_endpoint), limit)
