"""Budgets: what instances cost in a calendar month at list prices, and how far a budget is used.

A month is one of the calendar in UTC. Whoever has an instance for all of it pays the price of a
month, be it 28 days long or 31: a second costs that price divided by the seconds of its month. Sums
are exact, and rounded down once, to micro-cents.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from control.policy import prices
from control.policy.sizes import SIZES

THRESHOLDS: Final = (50, 80, 100)
"""Percent of a budget."""
MICRO_CENTS: Final = 1_000_000
"""In a cent."""


class Metered(Protocol):
    """What instances of one kind have been for, together; `lasting` of them still are."""

    @property
    def size(self) -> str: ...
    @property
    def storage_bytes(self) -> int: ...
    @property
    def runs(self) -> bool: ...
    @property
    def seconds(self) -> int: ...
    @property
    def lasting(self) -> int: ...


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
        return (self.end - self.begin) // timedelta(seconds=1)

    def seconds_left(self, moment: datetime) -> int:
        """With the one that the moment is in, as spans are counted until the one before it."""
        return self.seconds - (moment - self.begin) // timedelta(seconds=1)


@dataclass(frozen=True)
class Spend:
    """In micro-cents: until now, and to the end of the month if what is live stays as it is."""

    month_to_date: int
    forecast: int


def month_of(moment: datetime) -> Month:
    begin = moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return Month(begin, (begin + timedelta(days=31)).replace(day=1))


def spend(month: Month, usages: Iterable[Metered], now: datetime) -> Spend:
    """Of what was counted from the month's begin until now."""
    left = month.seconds_left(now)
    spent = to_come = 0
    for usage in usages:
        rate = prices.month_usd_cents(SIZES[usage.size], usage.storage_bytes, runs=usage.runs)
        spent += rate * usage.seconds
        to_come += rate * usage.lasting * left
    return Spend(_micro_cents(spent, month), _micro_cents(spent + to_come, month))


def _micro_cents(cent_seconds: int, month: Month) -> int:
    return cent_seconds * MICRO_CENTS // month.seconds


def whole_cents(micro_cents: int) -> int:
    """Rounded down, so that a budget is shown as reached when it is, and not before."""
    return micro_cents // MICRO_CENTS


def used_percent(micro_cents: int, budget_cents: int | None) -> int | None:
    """Rounded down; None without a budget, and of one of nothing, which has no parts."""
    return micro_cents * 100 // (budget_cents * MICRO_CENTS) if budget_cents else None


def crossed(micro_cents: int, budget_cents: int | None) -> tuple[int, ...]:
    """The thresholds that are reached, lowest first; of nothing, all with the first micro-cent."""
    if budget_cents is None or micro_cents == 0:
        return ()
    spent = micro_cents * 100
    return tuple(each for each in THRESHOLDS if spent >= each * budget_cents * MICRO_CENTS)
