"""The outbox: every event an organization may see, written with the change it tells of."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers
from storage.columns import DatabaseClock, Json, Owned, Record


class Event(Owned, Record):
    __tablename__ = "events"
    __table_args__ = (Index(None, "org_id", "id"), Index(None, "instance_id", "id"))

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    type: Mapped[str]
    time: Mapped[datetime] = mapped_column(default=DatabaseClock())
    instance_id: Mapped[str | None] = mapped_column(ForeignKey("instances.id"))
    data: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)


def append(
    db: Session, org_id: str, kind: str, data: dict[str, Any], instance_id: str | None = None
) -> Event:
    """Add an event to the transaction; `data` never holds a credential."""
    event = Event(
        id=identifiers.new("evt_"), org_id=org_id, type=kind, instance_id=instance_id, data=data
    )
    db.add(event)
    return event


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those written before that moment, oldest first; how many went."""
    old = select(Event.id).where(Event.id < identifiers.first_of("evt_", before))
    oldest = old.order_by(Event.id).limit(limit).scalar_subquery()
    return len(db.execute(delete(Event).where(Event.id.in_(oldest)).returning(Event.id)).all())
