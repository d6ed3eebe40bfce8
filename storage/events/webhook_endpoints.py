"""Webhook endpoints: where an organization's events are sent, which of them, and signed how."""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import ForeignKey, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.columns import Json, Owned, Record
from storage.errors import RecordNotFound
from storage.events import delivery_lanes, events
from storage.events.delivery_lanes import DeliveryLane
from storage.lookups import by_key
from storage.pages import Page

LANE: Final = "webhook"
"""The kind of lanes that endpoints have."""


class WebhookEndpoint(Owned, Record):
    """Secrets are sealed for the endpoint's id; the previous one signs too until its time is over.

    `filters` has lists of ids by what they are of; what is not in it is not filtered by.
    """

    __tablename__ = "webhook_endpoints"

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), index=True)
    url: Mapped[str]
    description: Mapped[str]
    events: Mapped[list[str]] = mapped_column(Json)
    filters: Mapped[dict[str, list[str]]] = mapped_column(Json, default=dict)
    enabled: Mapped[bool]
    disabled_at: Mapped[datetime | None]
    disabled_reason: Mapped[str | None]
    secret_sealed: Mapped[bytes]
    previous_sealed: Mapped[bytes | None]
    previous_until: Mapped[datetime | None]
    created_by: Mapped[str]

    def rotate(self, sealed: bytes, until: datetime) -> None:
        self.previous_sealed, self.previous_until = self.secret_sealed, until
        self.secret_sealed = sealed

    def sealed(self, now: datetime) -> list[bytes]:
        """The secrets that sign now, newest first."""
        previous = self.previous_sealed
        if previous is None or self.previous_until is None or self.previous_until <= now:
            return [self.secret_sealed]
        return [self.secret_sealed, previous]

    def enable(self, db: Session, now: datetime) -> None:
        """From the events after this moment on. Nothing, where it is enabled."""
        if not self.enabled:
            self.enabled, self.disabled_at, self.disabled_reason = True, None, None
            lane = delivery_lanes.fetch(db, self.id, lock=True)
            lane.switch_on(now, events.newest(db, self.org_id)[0])

    def disable(self, lane: DeliveryLane, now: datetime, reason: str | None) -> None:
        """`reason` is that of the service, None of a person."""
        self.enabled, self.disabled_at, self.disabled_reason = False, now, reason
        lane.switch_off()


def create(
    db: Session,
    endpoint_id: str,
    org_id: str,
    now: datetime,
    **values: Any,
) -> WebhookEndpoint:
    """With its lane, which begins after the newest event."""
    made = WebhookEndpoint(id=endpoint_id, org_id=org_id, **values)
    made.disabled_at = None if made.enabled else now
    db.add(made)
    seq, due = events.newest(db, org_id)[0], now if made.enabled else None
    delivery_lanes.create(db, endpoint_id, org_id, LANE, seq=seq, due=due)
    db.flush()
    return made


def new_id() -> str:
    return identifiers.new("wh_")


def fetch(db: Session, org_id: str, endpoint_id: str, *, lock: bool = False) -> WebhookEndpoint:
    found = by_key(db, WebhookEndpoint, endpoint_id, lock=lock)
    if found is None or found.org_id != org_id:
        raise RecordNotFound("webhook endpoint not found")
    return found


def hold(db: Session, endpoint: WebhookEndpoint) -> DeliveryLane:
    """Until the commit, as it is by now; its lane, which everybody locks first."""
    lane = delivery_lanes.fetch(db, endpoint.id, lock=True)
    fetch(db, endpoint.org_id, endpoint.id, lock=True)
    return lane


def find(db: Session, endpoint_id: str) -> WebhookEndpoint | None:
    """Of whatever organization; for a session of the service itself."""
    return by_key(db, WebhookEndpoint, endpoint_id)


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[WebhookEndpoint]:
    """Those of the organization, newest first."""
    rows = select(WebhookEndpoint).where(WebhookEndpoint.org_id == org_id)
    return pages.keyset(db, rows, WebhookEndpoint.id, limit=limit, after=after)


def count(db: Session, org_id: str) -> int:
    rows = select(func.count()).select_from(WebhookEndpoint)
    return db.scalars(rows.where(WebhookEndpoint.org_id == org_id)).one()


def delete(db: Session, endpoint: WebhookEndpoint) -> None:
    """With its lane, so that whatever is being sent is recorded no more.

    Its deliveries, which may be many, are deleted later (`webhook_deliveries.forget_orphans`).
    """
    db.delete(delivery_lanes.fetch(db, endpoint.id, lock=True))
    db.delete(endpoint)
