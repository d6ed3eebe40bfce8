"""Correcting what was metered in an hour: by an entry more, now or in the month that is open."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from control.events.envelope import timestamp
from control.policy.months import hour_of, month_of
from control.policy.prices import PriceBook
from control.policy.rating import EGRESS, SEATS, MonthTally, UsageSums
from storage.access import organizations
from storage.billing import hourly, late_corrections, meters, recounts
from storage.billing.late_corrections import LateCorrection
from storage.billing.meters import MeterReading, MeterSums
from storage.events import audit

CLOSES_AFTER: Final = timedelta(days=1)
"""How long after its end a month can be corrected itself: its invoice is made a day later."""


def is_closed(hour: datetime, moment: datetime) -> bool:
    """Whether what is found out about the hour counts in the month of that moment."""
    return moment >= month_of(hour).end + CLOSES_AFTER


def note(
    db: Session, book: PriceBook, readings: Collection[MeterReading], moment: datetime
) -> None:
    """Write down readings: in their hour, or, where its month is closed, as late corrections.

    As in `meters`, the first reading of an hour counts, and egress only grows.
    """
    late = [one for one in readings if is_closed(one.hour, moment)]
    for reading in late:
        organizations.lock(db, reading.org_id)
        known = recounts.of_subject(db, reading.subject_id, reading.meter, reading.hour)
        grows = reading.meter == EGRESS or known is None
        if grows and (more := reading.quantity - (known or 0)) > 0:
            _add_late(db, book, reading._replace(quantity=more), recounts.METERED_LATE, moment)
    in_time = [one for one in readings if not is_closed(one.hour, moment)]
    meters.raise_to(db, [one for one in in_time if one.meter == EGRESS])
    meters.note(db, [one for one in in_time if one.meter != EGRESS])


@dataclass(frozen=True)
class Corrected:
    """`before` and `after` are of the hour; `counts_at` is the hour in which the rest is paid.

    Without a change `before` is `after`, and nothing was written. `micro_cents` is what a late
    correction costs; None where it is part of the hour itself.
    """

    reading: MeterReading
    before: int
    after: int
    counts_at: datetime
    micro_cents: int | None


def correct(
    db: Session, book: PriceBook, reading: MeterReading, reason: str, moment: datetime
) -> Corrected:
    """Make the hour's sum that of the reading, whatever was corrected before; `moment` is now.

    Raises RecordNotFound without such an organization.
    """
    organizations.fetch(db, reading.org_id)
    organizations.lock(db, reading.org_id)
    of = reading.subject_id, reading.meter, reading.hour
    entries = meters.of_hour(db, *of)
    before = sum(one.quantity for one in entries) + late_corrections.of_hour(db, *of)
    if entries:
        # As the hour was paid: whose it was then, and on which plan.
        last = entries[-1]
        reading = reading._replace(team_id=last.team_id, region=last.region, plan=last.plan)
    more = reading._replace(quantity=reading.quantity - before)
    counts_at, micro_cents = reading.hour, None
    if more.quantity and is_closed(reading.hour, moment):
        made = _add_late(db, book, more, reason, moment)
        counts_at, micro_cents = made.counts_at, made.micro_cents
    elif more.quantity:
        meters.correct(db, more, reason)
    if more.quantity:
        _audit(db, more, counts_at, micro_cents)
    return Corrected(reading, before, reading.quantity, counts_at, micro_cents)


def _add_late(
    db: Session, book: PriceBook, more: MeterReading, reason: str, moment: datetime
) -> LateCorrection:
    return late_corrections.add(db, more, hour_of(moment), _cost(book, more), reason)


def reading_of(
    db: Session, subject_id: str, meter: str, hour: datetime, quantity: int
) -> MeterReading:
    """Of an instance, or of an organization, as it is now. Raises RecordNotFound."""
    if meter == SEATS:
        org = organizations.fetch(db, subject_id)
        return MeterReading(org.id, meter, hour, org.id, None, None, org.plan, quantity)
    found = hourly.owner(db, subject_id)
    return MeterReading(found.instance_id, meter, hour, *found[1:], quantity)


def _cost(book: PriceBook, more: MeterReading) -> int:
    """At the prices of its hour, rounded down once."""
    tally = MonthTally(month_of(more.hour))
    instance_id = None if more.meter == SEATS else more.subject_id
    place = more.team_id, more.region, more.plan
    sums = MeterSums(instance_id, *place, more.meter, more.quantity)
    tally.add(book.at(more.hour), UsageSums(meters=[sums]))
    return tally.micro_cents


def _audit(db: Session, more: MeterReading, counts_at: datetime, micro_cents: int | None) -> None:
    detail = {
        "meter": more.meter,
        "hour": timestamp(more.hour),
        "quantity": more.quantity,
        "counts_at": timestamp(counts_at),
        "micro_cents": micro_cents,
    }
    subject = more.subject_id
    audit.append(
        db, more.org_id, "usage.correct", actor_kind="system", target=subject, detail=detail
    )
