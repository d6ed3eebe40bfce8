"""Usage as rows: by time and by whom, in an order in which a list can go on where it was cut."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from control.billing import charges
from control.policy.months import HOUR, Month, month_of, months
from control.policy.prices import PriceBook
from control.policy.rating import Charge, LineKey, MonthTally
from storage.billing.whose import Whose

LONGEST: Final[Mapping[str, timedelta]] = {
    "hour": timedelta(days=7),
    "day": timedelta(days=92),
    "month": timedelta(days=397),
}
"""The longest span that is told of at once, by granularity."""
GroupOf = Callable[[LineKey], str | None]


@dataclass(frozen=True)
class UsageRow:
    """What a group used from `begin` to `end`, by metric. None is what belongs to no group."""

    begin: datetime
    end: datetime
    group: str | None
    charges: Mapping[str, Charge]

    @property
    def micro_cents(self) -> int:
        return sum(charge.micro_cents for charge in self.charges.values())

    @property
    def place(self) -> tuple[datetime, str]:
        """By which rows are in order; no group has an empty name."""
        return self.begin, self.group or ""


def rows(
    db: Session,
    book: PriceBook,
    whose: Whose,
    span: tuple[datetime, datetime],
    granularity: str,
    group_of: GroupOf,
    *,
    begin_at: datetime | None = None,
) -> Iterator[UsageRow]:
    """Those of [since, until), of buckets that begin at `begin_at` or later."""
    since, until = span
    for month in months(since, until):
        first, tally = max(since, begin_at or since, month.begin), MonthTally(month)
        if first >= month.end:
            continue
        _add(db, book, whose, tally, month.begin, first)
        for begin, end in _buckets(month, first, min(until, month.end), granularity):
            added = _add(db, book, whose, tally, begin, end)
            yield from _grouped(begin, end, added, group_of)


def _buckets(
    month: Month, since: datetime, until: datetime, granularity: str
) -> Iterator[tuple[datetime, datetime]]:
    begin = since
    while begin < until:
        end = min(_end_of(begin, month, granularity), until)
        yield begin, end
        begin = end


def _end_of(moment: datetime, month: Month, granularity: str) -> datetime:
    if granularity == "month":
        return month.end
    if granularity == "day":
        return moment.replace(hour=0) + timedelta(days=1)
    return moment + HOUR


def _add(
    db: Session,
    book: PriceBook,
    whose: Whose,
    tally: MonthTally,
    since: datetime,
    until: datetime,
) -> dict[LineKey, Charge]:
    added: dict[LineKey, Charge] = {}
    for begin, end, prices in book.cut(since, until):
        for key, more in tally.add(prices, charges.sums(db, whose, begin, end)).items():
            added[key] = _plus(added.get(key), more)
    return added


def _grouped(
    begin: datetime, end: datetime, added: Mapping[LineKey, Charge], group_of: GroupOf
) -> Iterator[UsageRow]:
    groups: defaultdict[str, dict[str, Charge]] = defaultdict(dict)
    for key, charge in added.items():
        if charge != Charge(0, 0):
            of_group = groups[group_of(key) or ""]
            of_group[key.metric] = _plus(of_group.get(key.metric), charge)
    for name in sorted(groups):
        yield UsageRow(begin, end, name or None, groups[name])


def _plus(one: Charge | None, other: Charge) -> Charge:
    if one is None:
        return other
    return Charge(one.quantity + other.quantity, one.micro_cents + other.micro_cents)


@dataclass(frozen=True)
class CostRow:
    """What a team, or the organization itself (None), costs in a month: so far, and at its end."""

    team_id: str | None
    so_far: Mapping[str, Charge]
    forecast: Mapping[str, Charge]


def cost_rows(
    db: Session, book: PriceBook, whose: Whose, month: Month, now: datetime
) -> list[CostRow]:
    """One for each team that has any, by their ids; the organization's own is the first."""
    found = charges.charged(db, book, whose, month, now)
    so_far, forecast = (
        {row.group: row.charges for row in _grouped(month.begin, month.end, each.lines, _team_of)}
        for each in found
    )
    names = sorted(so_far.keys() | forecast.keys(), key=lambda name: name or "")
    return [CostRow(name, so_far.get(name, {}), forecast.get(name, {})) for name in names]


def _team_of(key: LineKey) -> str | None:
    return key.team_id


def month_named(name: str) -> Month:
    """Of a name such as 2026-11, which the calendar has."""
    return month_of(datetime.fromisoformat(f"{name}-01T00:00:00+00:00"))
