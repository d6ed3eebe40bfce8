"""Months of the calendar in UTC, by which everything is billed."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

HOUR: Final = timedelta(hours=1)
SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True)
class Month:
    """From the first moment of it until that of the next one."""

    begin: datetime
    end: datetime

    @property
    def name(self) -> str:
        return f"{self.begin:%Y-%m}"

    @property
    def seconds(self) -> int:
        return (self.end - self.begin) // SECOND

    def seconds_left(self, moment: datetime) -> int:
        """With the one that the moment is in, as spans are counted until the one before it."""
        return self.seconds - (moment - self.begin) // SECOND


def month_of(moment: datetime) -> Month:
    begin = moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return Month(begin, (begin + timedelta(days=31)).replace(day=1))


def month_named(name: str) -> Month:
    """Of a name such as 2026-11."""
    return month_of(datetime.fromisoformat(f"{name}-01T00:00:00+00:00"))


def months(since: datetime, until: datetime) -> Iterator[Month]:
    """Those that [since, until) touches, in their order."""
    if since >= until:
        return
    month = month_of(since)
    while month.begin < until:
        yield month
        month = month_of(month.end)


def hour_of(moment: datetime) -> datetime:
    """When the hour of the moment began, in UTC."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
