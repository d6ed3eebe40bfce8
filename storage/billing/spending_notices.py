"""Spending notices: of which part of its cap an organization has been told in which month."""

from typing import NamedTuple

from sqlalchemy import ForeignKey, exists, or_, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.access.organizations import Organization
from storage.columns import Owned, Record
from storage.events.alerts import Alert


class SpendingNotice(Owned, Record):
    """Told once, whatever becomes of the cap later in the month."""

    __tablename__ = "spending_notices"

    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    month: Mapped[str] = mapped_column(primary_key=True)
    percent: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Capped(NamedTuple):
    """An open organization with a cap, or with an alert about one that is not resolved yet."""

    org: Organization
    is_alerted: bool


def capped(db: Session, kind: str, *, limit: int, after: str) -> list[Capped]:
    """By their ids; `kind` is that of the alerts."""
    is_alerted = exists().where(
        Alert.org_id == Organization.id, Alert.kind == kind, Alert.resolved_at.is_(None)
    )
    rows = select(Organization, is_alerted).where(
        Organization.id > after,
        or_(Organization.spending_cap_cents.is_not(None), is_alerted),
    )
    return [Capped(*row) for row in db.execute(rows.order_by(Organization.id).limit(limit))]


def told(db: Session, org_id: str, month: str) -> set[int]:
    """The percentages that the organization has been told of in the month."""
    rows = select(SpendingNotice.percent).where(
        SpendingNotice.org_id == org_id, SpendingNotice.month == month
    )
    return set(db.scalars(rows))


def note(db: Session, org_id: str, month: str, percent: int) -> None:
    db.add(SpendingNotice(org_id=org_id, month=month, percent=percent))
    db.flush()
