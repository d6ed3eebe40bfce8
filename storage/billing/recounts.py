"""What was metered, read again for checks: by the hour of everybody, and by the month of one."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from storage.access import memberships
from storage.billing.late_corrections import LateCorrection
from storage.billing.meters import SEATS, MeteredHour, MeterEntry
from storage.instances.instances import Instance
from storage.instances.spans import BilledSpan

METERED_LATE: Final = "metered after the month was closed"
"""The reason of a late correction that is a reading."""


_READINGS: Final[tuple[tuple[Any, Any], ...]] = (
    (MeterEntry, MeterEntry.seq >= 0),
    (LateCorrection, LateCorrection.reason == METERED_LATE),
)


class Metered(NamedTuple):
    """All readings of an hour, without corrections."""

    org_id: str
    quantity: int


def of_hour(
    db: Session, meter: str, hour: datetime, *, cell_id: str | None = None
) -> dict[str, Metered]:
    """By subject: what was read of everybody, or of what the cell hosts, or hosted."""
    found: dict[str, Metered] = {}
    for record, is_reading in _READINGS:
        kind = record.subject_id, record.org_id
        rows: Any = select(*kind, func.sum(record.quantity)).where(
            record.hour == hour, record.meter == meter, is_reading
        )
        if cell_id is not None:
            rows = rows.join(Instance, Instance.id == record.subject_id)
            rows = rows.where(Instance.cell_id == cell_id)
        for subject_id, org_id, quantity in db.execute(rows.group_by(*kind)):
            before = found[subject_id].quantity if subject_id in found else 0
            found[subject_id] = Metered(org_id, before + int(quantity))
    return found


def of_subject(db: Session, subject_id: str, meter: str, hour: datetime) -> int | None:
    """Of one subject, as `of_hour`; None where there is no reading."""
    found = []
    for record, is_reading in _READINGS:
        rows = select(func.sum(record.quantity)).where(
            record.subject_id == subject_id, record.meter == meter, record.hour == hour, is_reading
        )
        found.append(db.scalar(rows))
    known = [int(each) for each in found if each is not None]
    return sum(known) if known else None


def lasting(db: Session, ids: Collection[str], since: datetime) -> set[str]:
    """Those of these instances that have been the same, and paid for, since before that moment."""
    rows = select(BilledSpan.instance_id).where(
        BilledSpan.instance_id.in_(ids), BilledSpan.until.is_(None), BilledSpan.since <= since
    )
    return set(db.scalars(rows))


def repeated(
    db: Session, org_id: str, meters: Collection[str], since: datetime, until: datetime
) -> dict[str, int]:
    """By meter: second readings of hours that are read once; nobody writes any."""
    rows = select(MeterEntry.meter, func.count()).where(
        MeterEntry.org_id == org_id,
        MeterEntry.hour >= since,
        MeterEntry.hour < until,
        MeterEntry.meter.in_(meters),
        MeterEntry.seq > 0,
    )
    return dict(db.execute(rows.group_by(MeterEntry.meter)).tuples().all())


def hours_with_seats(db: Session, org_id: str, since: datetime, until: datetime) -> tuple[int, int]:
    """How many hours were metered in which the organization was there, and has readings of seats.

    Both are 0 where it has no members.
    """
    if not memberships.count(db, org_id):
        return 0, 0
    metered = select(func.count()).where(MeteredHour.hour >= since, MeteredHour.hour < until)
    of_org = select(func.count(MeterEntry.hour.distinct())).where(
        MeterEntry.org_id == org_id,
        MeterEntry.meter == SEATS,
        MeterEntry.seq >= 0,
        MeterEntry.hour >= since,
        MeterEntry.hour < until,
    )
    late = select(func.count(LateCorrection.hour.distinct())).where(
        LateCorrection.subject_id == org_id,
        LateCorrection.meter == SEATS,
        LateCorrection.reason == METERED_LATE,
        LateCorrection.hour >= since,
        LateCorrection.hour < until,
    )
    found = [int(db.scalars(each).one()) for each in (metered, of_org, late)]
    return found[0], found[1] + found[2]
