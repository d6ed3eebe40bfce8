"""What is charged in a month: every sum of costs is made here, from spans and meters.

Budgets, usage, cost reports, the spending cap and invoices read the same lines.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy.orm import Session

from control.policy.months import HOUR, SECOND, Month, hour_of
from control.policy.prices import PriceBook
from control.policy.rating import EGRESS, MonthTally, UsageSums
from storage.billing import late_corrections, meters, plan_spans
from storage.billing.meters import MeterSums
from storage.billing.plan_spans import PlanSums
from storage.billing.whose import Whose
from storage.instances import spans
from storage.instances.spans import SpanSums


@dataclass(frozen=True)
class Spend:
    """In micro-cents: until now, and to the end of the month if what is live stays as it is."""

    month_to_date: int
    forecast: int


class Charged(NamedTuple):
    """The lines of a month until a moment, and as they will be at its end."""

    tally: MonthTally
    forecast: MonthTally

    @property
    def spend(self) -> Spend:
        return Spend(self.tally.micro_cents, self.forecast.micro_cents)


def sums(db: Session, whose: Whose, since: datetime, until: datetime) -> UsageSums:
    """Everything that was used within a time; the rows are read as they are asked for."""
    return UsageSums(
        spans.sums(db, whose, since=since, until=until),
        meters.sums(db, whose, since=since, until=until),
        _plans(db, whose, since, until),
        late_corrections.sums(db, whose, since=since, until=until),
    )


def _plans(db: Session, whose: Whose, since: datetime, until: datetime) -> Iterator[PlanSums]:
    if whose.is_whole and whose.org_id is not None:
        yield from plan_spans.sums(db, whose.org_id, since=since, until=until)


def tally(db: Session, book: PriceBook, whose: Whose, month: Month, until: datetime) -> MonthTally:
    """The lines of the month until then, each part of it at the prices of its time."""
    found = MonthTally(month)
    for begin, end, prices in book.cut(month.begin, min(until, month.end)):
        found.add(prices, sums(db, whose, begin, end))
    return found


def charged(db: Session, book: PriceBook, whose: Whose, month: Month, now: datetime) -> Charged:
    """Of a month that is over the forecast is what it was."""
    until_now = tally(db, book, whose, month, now)
    if now >= month.end:
        return Charged(until_now, until_now)
    return Charged(until_now, foretold(book, until_now, Foreseen.of(db, whose, now), now))


def foretold(book: PriceBook, tally: MonthTally, foreseen: "Foreseen", now: datetime) -> MonthTally:
    """The lines as they are at the month's end, if what is foreseen comes to pass."""
    found, month = tally.copy(), tally.month
    for begin, end, prices in book.cut(max(month.begin, _second_of(now)), month.end):
        found.add(prices, foreseen.within(begin, end))
    return found


def of_teams(
    db: Session, book: PriceBook, team_ids: Collection[str], month: Month, now: datetime
) -> dict[str, Spend]:
    """What each of these teams spends, of whatever organization they are."""
    found = charged(db, book, Whose(team_ids=team_ids), month, now)
    return by_team(found, team_ids)


def by_team(found: Charged, team_ids: Collection[str]) -> dict[str, Spend]:
    spent: defaultdict[str | None, list[int]] = defaultdict(lambda: [0, 0])
    for number, each in enumerate(found):
        for key, charge in each.lines.items():
            spent[key.team_id][number] += charge.micro_cents
    return {team_id: Spend(*spent[team_id]) for team_id in team_ids}


@dataclass(frozen=True)
class Foreseen:
    """What is live now, and goes on as it is.

    Of what is metered by the hour, the last hour that was metered is repeated; nothing is foreseen
    of egress.
    """

    spans: Sequence[SpanSums]
    plans: Sequence[PlanSums]
    meters: Sequence[MeterSums]
    next_hour: datetime

    @classmethod
    def of(cls, db: Session, whose: Whose, now: datetime) -> "Foreseen":
        at = _second_of(now)
        # Of the second that is now only those that last are counted, and no seconds of them.
        lasting = [each for each in spans.sums(db, whose, since=at, until=now) if each.lasting]
        plans = [each for each in _plans(db, whose, at, now) if each.lasting]
        last = meters.last_metered(db)
        metered = (
            [] if last is None else list(meters.sums(db, whose, since=last, until=last + HOUR))
        )
        gauges = [each for each in metered if each.meter != EGRESS]
        return cls(lasting, plans, gauges, hour_of(now) if last is None else last + HOUR)

    def within(self, begin: datetime, end: datetime) -> UsageSums:
        seconds = (end - begin) // SECOND
        first = max(hour_of(begin), self.next_hour)
        hours = max(timedelta(), end - first) // HOUR
        return UsageSums(
            [each._replace(seconds=seconds * each.lasting) for each in self.spans],
            [each._replace(quantity=each.quantity * hours) for each in self.meters],
            [each._replace(seconds=seconds) for each in self.plans],
        )


def _second_of(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)
