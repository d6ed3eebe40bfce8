"""Late corrections: of hours whose month is billed, counted in the month in which they are made.

They are only ever added, and the database refuses to change or delete one (migration 202611301550).
What one costs was decided when it was made, at the prices of the hour that it corrects.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ForeignKey, Index, Select, case, func, literal, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers
from storage.billing.meters import SEATS, MeterReading
from storage.billing.whose import Whose
from storage.columns import Owned, Record
from storage.instances.instances import Instance


class LateCorrection(Owned, Record):
    """`quantity` is added to that of `hour`, in the unit of the meter; it counts in `counts_at`.

    That is a full hour too. `team_id`, `region` and `plan` are those of the hour that it corrects.
    """

    __tablename__ = "late_corrections"
    __table_args__ = (
        Index(None, "org_id", "counts_at"),
        Index(None, "team_id", "counts_at"),
        Index(None, "subject_id", "meter", "hour"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    subject_id: Mapped[str]
    meter: Mapped[str]
    hour: Mapped[datetime]
    counts_at: Mapped[datetime]
    team_id: Mapped[str | None]
    region: Mapped[str | None]
    plan: Mapped[str]
    quantity: Mapped[int] = mapped_column(BigInteger)
    micro_cents: Mapped[int] = mapped_column(BigInteger)
    reason: Mapped[str]


class CorrectionSums(NamedTuple):
    """What late corrections of a meter add within a time, and what that costs in micro-cents."""

    instance_id: str | None
    team_id: str | None
    meter: str
    quantity: int
    micro_cents: int


def add(
    db: Session, difference: MeterReading, counts_at: datetime, micro_cents: int, reason: str
) -> LateCorrection:
    """`difference` has how much more there was in its hour, or less."""
    made = LateCorrection(
        id=identifiers.new("mcor_"),
        counts_at=counts_at,
        micro_cents=micro_cents,
        reason=reason,
        **difference._asdict(),
    )
    db.add(made)
    db.flush()
    return made


def of_hour(db: Session, subject_id: str, meter: str, hour: datetime) -> int:
    """What late corrections have added to an hour by now."""
    rows = select(func.coalesce(func.sum(LateCorrection.quantity), 0)).where(
        LateCorrection.subject_id == subject_id,
        LateCorrection.meter == meter,
        LateCorrection.hour == hour,
    )
    return int(db.scalars(rows).one())


def sums(
    db: Session, whose: Whose, *, since: datetime, until: datetime
) -> Iterator[CorrectionSums]:
    """Of those that count within [since, until)."""
    kind = LateCorrection.subject_id, LateCorrection.team_id, LateCorrection.meter
    instance = case((LateCorrection.meter == literal(SEATS), None), else_=kind[0])
    added = func.sum(LateCorrection.quantity), func.sum(LateCorrection.micro_cents)
    rows: Select[*tuple[Any, ...]] = select(instance, *kind[1:], *added)
    rows = rows.where(LateCorrection.counts_at >= since, LateCorrection.counts_at < until)
    if whose.scope is not None:
        rows = rows.join(Instance, Instance.id == LateCorrection.subject_id)
    rows = whose.of(
        rows,
        org=LateCorrection.org_id,
        team=LateCorrection.team_id,
        instance=LateCorrection.subject_id,
    )
    for row in db.execute(rows.group_by(*kind)):
        yield CorrectionSums._make((*row[:3], int(row[3]), int(row[4])))


def of_bill(
    db: Session, org_id: str, *, since: datetime, until: datetime
) -> Iterator[LateCorrection]:
    """Those of an organization that count within [since, until), by the hour that they correct."""
    rows = select(LateCorrection).where(
        LateCorrection.org_id == org_id,
        LateCorrection.counts_at >= since,
        LateCorrection.counts_at < until,
    )
    yield from db.scalars(rows.order_by(LateCorrection.hour, LateCorrection.id))
