"""Metering by the hour: backups, domains and seats, of each hour once it is over."""

from datetime import datetime
from itertools import chain
from typing import Final

from sqlalchemy.orm import Session

from control.billing import correcting
from control.policy.months import HOUR, hour_of
from control.policy.rating import BACKUPS, DOMAINS
from control.work import Operation, Schedule, workflow
from storage.billing import hourly, meters
from storage.billing.meters import MeterReading
from storage.database import now

HOURS_MAX: Final = 31 * 24
"""So far back what nobody metered is metered, as far as it is still known."""
AT_ONCE: Final = 1_000
"""Readings that are written in one transaction."""


@workflow("usage.meter", deadline_s=600)
def meter(op: Operation) -> None:
    """Killed between two hours, or with another beside it, it notes nothing twice."""
    book = op.services.settings.prices
    if not book.is_on:
        return
    with op.database.read() as db:
        due = hours_due(db, now(db))
    for hour in due:
        with op.database.read() as db:
            found = readings(db, hour)
        for first in range(0, len(found), AT_ONCE):
            with op.database.write() as db:
                correcting.note(db, book, found[first : first + AT_ONCE], now(db))
        with op.database.write() as db:
            meters.note_metered(db, hour)


def hours_due(db: Session, moment: datetime) -> list[datetime]:
    """Those that are over and not metered, the oldest first; at the first time, the last one."""
    last, end = meters.last_metered(db), hour_of(moment)
    begin = end - HOUR if last is None else max(last + HOUR, end - HOURS_MAX * HOUR)
    return [begin + number * HOUR for number in range(max(0, (end - begin) // HOUR))]


def readings(db: Session, hour: datetime) -> list[MeterReading]:
    of_instances = hourly.backups(db, BACKUPS, hour), hourly.domains(db, DOMAINS, hour)
    return list(chain(*of_instances, hourly.seats(db, hour)))


SCHEDULE: Final = Schedule("usage_metering", meter, every_s=300)
