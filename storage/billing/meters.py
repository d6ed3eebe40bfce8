"""Meters: what was used in an hour, where it does not follow from what an instance was.

Entries are only ever added, and the database refuses to change one. What was used of a meter by a
subject (an instance, or the organization itself) in an hour is the sum of its entries; each has a
number, so of two who write the same one only the first is heard. What is to be corrected is, by an
entry with a reason. Corrections have numbers below 0: they take no reading's place, and a reading
that comes late does not undo them.
"""

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import BigInteger, ForeignKey, Index, Select, case, func, literal, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.billing.whose import Whose
from storage.columns import Owned, Record
from storage.instances.instances import Instance

SEATS: Final = "seats"
"""The meter whose subject is the organization."""


class MeterEntry(Owned, Record):
    """`quantity` is in the unit of the meter, and negative only in a correction.

    `team_id`, `region` and `plan` are those of the hour, by which it is paid.
    """

    __tablename__ = "meter_entries"
    __table_args__ = (Index(None, "org_id", "hour"), Index(None, "team_id", "hour"))

    subject_id: Mapped[str] = mapped_column(primary_key=True)
    meter: Mapped[str] = mapped_column(primary_key=True)
    hour: Mapped[datetime] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    team_id: Mapped[str | None]
    region: Mapped[str | None]
    plan: Mapped[str]
    quantity: Mapped[int] = mapped_column(BigInteger)
    reason: Mapped[str | None]


class MeteredHour(Record):
    """An hour of which everything is metered that is counted when it is over."""

    __tablename__ = "metered_hours"

    hour: Mapped[datetime] = mapped_column(primary_key=True, autoincrement=False)


class MeterReading(NamedTuple):
    """What a subject has used of a meter in an hour, all of it, as is known now."""

    subject_id: str
    meter: str
    hour: datetime
    org_id: str
    team_id: str | None
    region: str | None
    plan: str
    quantity: int


class MeterSums(NamedTuple):
    """What was used of a meter within a time, for whom, and on which plan."""

    instance_id: str | None
    team_id: str | None
    region: str | None
    plan: str
    meter: str
    quantity: int


def note(db: Session, readings: Collection[MeterReading]) -> None:
    """The first reading of an hour counts; whoever comes later, or again, changes nothing."""
    _add(db, [{**one._asdict(), "seq": 0} for one in readings])


def raise_to(db: Session, readings: Collection[MeterReading]) -> None:
    """Of what only grows within an hour: an entry for what was not noted yet, if any.

    A reading that is late and less than what is known changes nothing.
    """
    known = _known(db, readings)
    new = []
    for one in readings:
        count, total = known.get(one[:3], (0, 0))
        if one.quantity > total:
            new.append({**one._asdict(), "quantity": one.quantity - total, "seq": count})
    _add(db, new)


def _known(
    db: Session, readings: Collection[MeterReading]
) -> dict[tuple[str, str, datetime], tuple[int, int]]:
    """By subject, meter and hour: how many readings there are, and their sum."""
    key = MeterEntry.subject_id, MeterEntry.meter, MeterEntry.hour
    rows = select(*key, func.count(), func.sum(MeterEntry.quantity)).where(
        MeterEntry.subject_id.in_({one.subject_id for one in readings}),
        MeterEntry.meter.in_({one.meter for one in readings}),
        MeterEntry.hour.in_({one.hour for one in readings}),
        MeterEntry.seq >= 0,
    )
    found = db.execute(rows.group_by(*key))
    return {
        (subject, meter, hour): (count, int(total)) for subject, meter, hour, count, total in found
    }


def of_hour(db: Session, subject_id: str, meter: str, hour: datetime) -> list[MeterEntry]:
    """All entries, corrections first, the newest of them before the others."""
    rows = select(MeterEntry).where(
        MeterEntry.subject_id == subject_id, MeterEntry.meter == meter, MeterEntry.hour == hour
    )
    return list(db.scalars(rows.order_by(MeterEntry.seq)))


def correct(db: Session, difference: MeterReading, reason: str) -> None:
    """Add to the hour; the quantity of the difference is how much more there was, or less.

    Whoever corrects holds the organization, so of two who do so at once one sees the other's.
    """
    known = of_hour(db, *difference[:3])
    lowest = min((one.seq for one in known), default=0)
    db.add(MeterEntry(**difference._asdict(), seq=min(lowest, 0) - 1, reason=reason))
    db.flush()


def _add(db: Session, rows: list[dict[str, Any]]) -> None:
    if rows:
        # SQLite writes its clause alike.
        adding = postgresql.insert(MeterEntry).on_conflict_do_nothing()
        db.execute(adding, rows)


def sums(db: Session, whose: Whose, *, since: datetime, until: datetime) -> Iterator[MeterSums]:
    """Of the hours that begin within [since, until)."""
    instance = case((MeterEntry.meter == literal(SEATS), None), else_=MeterEntry.subject_id)
    kind = (
        *(MeterEntry.subject_id, MeterEntry.team_id, MeterEntry.region),
        *(MeterEntry.plan, MeterEntry.meter),
    )
    rows: Select[*tuple[Any, ...]] = select(
        instance, *kind[1:], func.sum(MeterEntry.quantity)
    ).where(MeterEntry.hour >= since, MeterEntry.hour < until)
    if whose.scope is not None:
        rows = rows.join(Instance, Instance.id == MeterEntry.subject_id)
    rows = whose.of(
        rows, org=MeterEntry.org_id, team=MeterEntry.team_id, instance=MeterEntry.subject_id
    )
    for row in db.execute(rows.group_by(*kind)):
        yield MeterSums._make((*row[:5], int(row[5])))


def last_metered(db: Session) -> datetime | None:
    """The newest hour of which everything is metered."""
    return db.scalar(select(func.max(MeteredHour.hour)))


def note_metered(db: Session, hour: datetime) -> None:
    adding = postgresql.insert(MeteredHour).on_conflict_do_nothing()
    db.execute(adding, [{"hour": hour}])
