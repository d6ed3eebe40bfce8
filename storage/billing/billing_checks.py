"""Billing checks: when each month was compared last, and how many differences were found."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Record
from storage.lookups import by_key


class BillingCheck(Record):
    """Of a month (as in 2026-11), the last time it was compared to its end."""

    __tablename__ = "billing_checks"

    month: Mapped[str] = mapped_column(primary_key=True)
    checked_at: Mapped[datetime]
    organizations: Mapped[int] = mapped_column(BigInteger)
    differences: Mapped[int] = mapped_column(BigInteger)


def note(
    db: Session, month: str, *, checked_at: datetime, organizations: int, differences: int
) -> None:
    found = by_key(db, BillingCheck, month, lock=True) or BillingCheck(month=month)
    found.checked_at, found.organizations = checked_at, organizations
    found.differences = differences
    db.add(found)
    db.flush()


def newest(db: Session, count: int) -> Sequence[BillingCheck]:
    """Those of the newest months, the newest first."""
    rows = select(BillingCheck).order_by(BillingCheck.month.desc())
    return db.scalars(rows.limit(count)).all()
