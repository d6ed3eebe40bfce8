"""What things cost: lists of prices, each with the hour from which it holds, in micro-cents."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from control.policy.sizes import GB, SIZES

MICRO_CENTS: Final = 1_000_000
"""In a cent, which is a hundredth of the currency."""
BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""From when the first list holds."""


@dataclass(frozen=True)
class Rates:
    """The prices of one region, for a month; `egress_gb` is for a GB that is sent."""

    sizes: Mapping[str, int]
    storage_gb_month: int
    backup_gb_month: int
    egress_gb: int
    domain_month: int

    def instance_month(self, size: str, storage_bytes: int, *, runs: bool = True) -> int:
        """A whole month of running, or of being paused."""
        compute = self.sizes[size] if runs else 0
        return compute + billed_gb(size, storage_bytes) * self.storage_gb_month


@dataclass(frozen=True)
class PriceList:
    """Holds from `since` until that of the next one.

    Organizations on `unmetered_plans` pay for no backups, egress, domains and seats.
    """

    since: datetime
    rates: Rates
    plans: Mapping[str, int]
    seat_month: int
    unmetered_plans: frozenset[str] = frozenset()
    regions: Mapping[str, Rates] = field(default_factory=dict)

    def in_region(self, region: str | None) -> Rates:
        return self.rates if region is None else self.regions.get(region, self.rates)

    def instance_month_cents(self, region: str | None, size: str, storage_bytes: int) -> int:
        """A whole month of running, in whole cents."""
        return nearest_cents(self.in_region(region).instance_month(size, storage_bytes))


@dataclass(frozen=True)
class PriceBook:
    """All price lists, the oldest first. Where money is off (`is_on`), everything costs nothing."""

    currency: str
    lists: tuple[PriceList, ...]
    is_on: bool = True

    def at(self, moment: datetime) -> PriceList:
        """The list that holds at that moment."""
        return next(each for each in reversed(self.lists) if each.since <= moment)

    def cut(
        self, since: datetime, until: datetime
    ) -> Iterator[tuple[datetime, datetime, PriceList]]:
        """The parts of [since, until) in which one list holds each."""
        ends = [each.since for each in self.lists[1:]] + [datetime.max.replace(tzinfo=UTC)]
        for one, next_since in zip(self.lists, ends, strict=True):
            begin, end = max(since, one.since), min(until, next_since)
            if begin < end:
                yield begin, end, one


def billed_gb(size: str, storage_bytes: int) -> int:
    """Every started GB beyond what the size includes."""
    return -(-max(0, storage_bytes - SIZES[size].storage_bytes_included) // GB)


def nearest_cents(micro_cents: int) -> int:
    """A price as it is shown: the nearest whole cent, upwards from a half."""
    return (2 * micro_cents + MICRO_CENTS) // (2 * MICRO_CENTS)


def whole_cents(micro_cents: int) -> int:
    """A sum as it is shown: rounded down, so that a limit is shown as reached when it is."""
    return micro_cents // MICRO_CENTS


def amount(cents: int, currency: str) -> str:
    """As in: 1,015.00 USD."""
    sign, cents = ("-", -cents) if cents < 0 else ("", cents)
    return f"{sign}{cents // 100:,}.{cents % 100:02d} {currency}"
