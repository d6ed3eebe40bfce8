"""Plan spans: on which plan each organization was, from one moment to another.

As spans of instances are (storage/instances/spans.py), they are written by the database itself,
whenever an organization is made, changes its plan or is closed.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    Index,
    Integer,
    case,
    func,
    literal,
    or_,
    select,
    text,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Owned, Record, Timestamp
from storage.instances.spans import WholeSeconds

_OPEN: Final = text("until IS NULL")


class PlanSpan(Owned, Record):
    """Written by the database alone. Without an `until` it lasts."""

    __tablename__ = "plan_spans"
    __table_args__ = (
        Index(
            "ix_plan_spans_open", "org_id", unique=True, postgresql_where=_OPEN, sqlite_where=_OPEN
        ),
        Index(None, "org_id", "until"),
    )

    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer(), "sqlite"), primary_key=True
    )
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    plan: Mapped[str]
    since: Mapped[datetime]
    until: Mapped[datetime | None]


class PlanSums(NamedTuple):
    """How long an organization was on a plan, within a time; `lasting`: whether it still is."""

    plan: str
    seconds: int
    lasting: int


def sums(db: Session, org_id: str, *, since: datetime, until: datetime) -> Iterator[PlanSums]:
    """Within [since, until), by the second as spans of instances are."""
    begins = case((PlanSpan.since > since, PlanSpan.since), else_=literal(since, Timestamp()))
    ends = case((PlanSpan.until < until, PlanSpan.until), else_=literal(until, Timestamp()))
    rows = select(
        PlanSpan.plan,
        func.sum(WholeSeconds(ends) - WholeSeconds(begins)),
        func.count().filter(or_(PlanSpan.until.is_(None), PlanSpan.until > until)),
    ).where(
        PlanSpan.org_id == org_id,
        PlanSpan.since < until,
        or_(PlanSpan.until.is_(None), PlanSpan.until > since),
    )
    for plan, seconds, lasting in db.execute(rows.group_by(PlanSpan.plan)):
        yield PlanSums(plan, int(seconds), lasting)
