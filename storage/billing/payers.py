"""Payers: from when until when a parent was to pay for what a subsidiary uses.

It is kept when it begins and when it ends, so what a month was split by never changes after it.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, ForeignKey, Index, or_, select, text, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, tenancy
from storage.columns import Owned, Record

_LASTS: Final = text("until IS NULL")


class PayerSpan(Owned, Record):
    """Full hours; without an `until` it lasts. One that ends where it begins is of no time."""

    __tablename__ = "payer_spans"
    __table_args__ = (
        Index(
            "ix_payer_spans_lasts",
            "org_id",
            unique=True,
            postgresql_where=_LASTS,
            sqlite_where=_LASTS,
        ),
        Index(None, "org_id", "until"),
        Index(None, "payer_id", "until"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    payer_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    since: Mapped[datetime]
    until: Mapped[datetime | None]


class PaidTime(NamedTuple):
    """A time in which somebody else paid for the organization."""

    org_id: str
    since: datetime
    until: datetime


def begin(db: Session, org_ids: Collection[str], payer_id: str, hour: datetime) -> None:
    """From that hour on."""
    with tenancy.across(db, "a parent begins to pay for its subsidiaries"):
        for org_id in org_ids:
            span_id = identifiers.new("pay_")
            db.add(PayerSpan(id=span_id, org_id=org_id, payer_id=payer_id, since=hour))
        db.flush()


def end(db: Session, org_ids: Collection[str], hour: datetime) -> None:
    """From that hour on each pays for itself, or somebody else does."""
    lasting = update(PayerSpan).where(PayerSpan.org_id.in_(org_ids), PayerSpan.until.is_(None))
    with tenancy.across(db, "a parent pays for its subsidiaries no more"):
        db.flush()
        db.execute(lasting.values(until=hour))


def is_paid_for(db: Session, org_id: str) -> bool:
    """Whether the parent pays for the organization now."""
    rows = select(PayerSpan.id).where(PayerSpan.org_id == org_id, PayerSpan.until.is_(None))
    return db.scalar(rows) is not None


def of_org(db: Session, org_id: str, since: datetime, until: datetime) -> list[PaidTime]:
    """For workers: when others paid for the organization within a time, oldest first."""
    return _within(db, PayerSpan.org_id == org_id, since, until)


def of_payer(db: Session, payer_id: str, since: datetime, until: datetime) -> list[PaidTime]:
    """For workers: for whom the organization paid within a time, by organization and age."""
    return _within(db, PayerSpan.payer_id == payer_id, since, until)


def _within(
    db: Session, whose: ColumnElement[bool], since: datetime, until: datetime
) -> list[PaidTime]:
    rows = select(PayerSpan).where(
        whose,
        PayerSpan.since < until,
        or_(PayerSpan.until.is_(None), PayerSpan.until > since),
    )
    found = db.scalars(rows.order_by(PayerSpan.org_id, PayerSpan.since, PayerSpan.id))
    parts = [
        PaidTime(one.org_id, max(one.since, since), min(one.until or until, until)) for one in found
    ]
    return [part for part in parts if part.since < part.until]
