"""What the operator's command for corrections of meters does, and how it tells it."""

import re
from datetime import UTC, datetime
from typing import Final

from control.billing import correcting
from control.billing.correcting import Corrected
from control.events.envelope import timestamp
from control.policy.months import HOUR, hour_of, month_of
from control.policy.prices import MICRO_CENTS, PriceBook, nearest_cents
from control.policy.prices import amount as shown
from control.policy.rating import BACKUPS, DOMAINS, EGRESS, SEATS, UNITS
from control.services import Services
from menagerie.credit_grants import text_of
from menagerie.errors import SettingsError
from storage.billing import meters

METERS: Final = (BACKUPS, EGRESS, DOMAINS, SEATS)
QUANTITY_MAX: Final = 10**15
"""A petabyte, of bytes in an hour."""
YEARS_MAX: Final = 3
_HOUR: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}(:00(:00(\.000)?)?)?Z")


def correct(
    services: Services, subject_id: str, meter: str, hour: str, quantity: str, *, reason: str
) -> str:
    """Raises SettingsError for what is no meter, hour, quantity or reason, and as storage does."""
    book = services.settings.prices
    if not book.is_on:
        raise SettingsError("nothing is metered: money is off")
    if meter not in METERS:
        raise SettingsError(f"{meter!r} is no meter: choose one of {', '.join(METERS)}")
    wanted, reason = _quantity(quantity), text_of("reason", reason)
    with services.database.write() as db:
        now = services.database.now(db)
        at = _hour(hour, now)
        _check_metered(meter, at, meters.last_metered(db))
        reading = correcting.reading_of(db, subject_id, meter, at, wanted)
        return _told(correcting.correct(db, book, reading, reason, now), book)


def _hour(text: str, now: datetime) -> datetime:
    """Raises SettingsError unless it is a full one that is over."""
    if not _HOUR.fullmatch(text):
        raise SettingsError(f"{text!r} is no hour: write it in UTC, as 2026-11-03T14:00Z")
    try:
        found = datetime.fromisoformat(f"{text[:13]}:00").replace(tzinfo=UTC)
    except ValueError:
        raise SettingsError(f"{text!r} is no hour of the calendar") from None
    if found + HOUR > now:
        raise SettingsError(f"{text} is not over: only hours before {hour_of(now):%FT%RZ} are")
    if found.year < now.year - YEARS_MAX:
        raise SettingsError(
            f"{text} is too old: from {now.year - YEARS_MAX} on it can be corrected"
        )
    return found


def _check_metered(meter: str, hour: datetime, last: datetime | None) -> None:
    """What is metered afterwards would be added to what was corrected, but for egress."""
    if meter != EGRESS and (last is None or hour > last):
        raise SettingsError(f"{meter} of {timestamp(hour)} are not metered yet: try again later")


def _quantity(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(QUANTITY_MAX))
    if not is_number or int(text) > QUANTITY_MAX:
        raise SettingsError(f"{text!r} must be a whole number from 0 to {QUANTITY_MAX:,}")
    return int(text)


def _told(of: Corrected, book: PriceBook) -> str:
    reading = of.reading
    unit = UNITS[reading.meter]
    hour = f"{reading.subject_id}: {reading.meter} of {timestamp(reading.hour)}"
    if of.after == of.before:
        return f"{hour} is {of.after:,} ({unit}) already; nothing was changed"
    told = f"{hour} was {of.before:,}, and is {of.after:,} ({unit})"
    if of.micro_cents is None:
        return f"{told}; it counts in {month_of(reading.hour).name}"
    cents = shown(nearest_cents(of.micro_cents), book.currency)
    exact = f"{of.micro_cents / MICRO_CENTS:,.6f} cents"
    month = month_of(of.counts_at).name
    return f"{told}; {month_of(reading.hour).name} is closed, so {cents} ({exact}) count in {month}"
