"""Rating: what usage costs, in lines that are each rounded once.

A line is what one instance (or the organization itself) used of one metric for one team in one
month of the calendar. Its cost is exact until it is rounded down, once, to a micro-cent. What a
part of a month costs, an hour or a day, is by how much the rounded cost has grown meanwhile: so
however usage is cut and grouped, the parts add up to the lines, and these to the whole.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple, Protocol

from control.policy.months import HOUR, SECOND, Month
from control.policy.prices import PriceList, Rates, billed_gb
from control.policy.sizes import GB

COMPUTE: Final = "compute"
STORAGE: Final = "storage"
BACKUPS: Final = "backups"
EGRESS: Final = "egress"
DOMAINS: Final = "domains"
PLAN: Final = "plan"
SEATS: Final = "seats"
UNITS: Final[Mapping[str, str]] = {
    COMPUTE: "second",
    STORAGE: "gb_second",
    BACKUPS: "byte_hour",
    EGRESS: "byte",
    DOMAINS: "domain_hour",
    PLAN: "second",
    SEATS: "seat_hour",
}
"""By metric, what its quantities count. `gb_second`: of every started GB that the size has not."""
_HOUR_S: Final = HOUR // SECOND


class SpanSum(Protocol):
    """How long an instance was something, within a time; `lasting` of its spans last beyond it."""

    @property
    def instance_id(self) -> str: ...
    @property
    def team_id(self) -> str | None: ...
    @property
    def region(self) -> str: ...
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


class MeterSum(Protocol):
    """How much was metered within a time, in the unit of the metric."""

    @property
    def instance_id(self) -> str | None: ...
    @property
    def team_id(self) -> str | None: ...
    @property
    def region(self) -> str | None: ...
    @property
    def plan(self) -> str: ...
    @property
    def meter(self) -> str: ...
    @property
    def quantity(self) -> int: ...


class CorrectionSum(Protocol):
    """What is added to a line later, at a cost that was decided when it was."""

    @property
    def instance_id(self) -> str | None: ...
    @property
    def team_id(self) -> str | None: ...
    @property
    def meter(self) -> str: ...
    @property
    def quantity(self) -> int: ...
    @property
    def micro_cents(self) -> int: ...


class PlanSum(Protocol):
    """How long the organization was on a plan, within a time."""

    @property
    def plan(self) -> str: ...
    @property
    def seconds(self) -> int: ...
    @property
    def lasting(self) -> int: ...


@dataclass(frozen=True)
class UsageSums:
    """Everything that was used within a time in which one price list holds."""

    spans: Iterable[SpanSum] = ()
    meters: Iterable[MeterSum] = ()
    plans: Iterable[PlanSum] = ()
    corrections: Iterable[CorrectionSum] = ()


class LineKey(NamedTuple):
    """Whose line it is; without an instance, the organization's."""

    instance_id: str | None
    team_id: str | None
    metric: str


class Charge(NamedTuple):
    """How much of a metric, in its unit, and what it costs in micro-cents."""

    quantity: int
    micro_cents: int


@dataclass(slots=True)
class _Line:
    """`parts` is its exact cost, in parts of a micro-cent."""

    quantity: int = 0
    parts: int = 0
    micro_cents: int = 0


@dataclass
class MonthTally:
    """The lines of one month, to which usage is added in the order of time."""

    month: Month
    _lines: defaultdict[LineKey, _Line] = field(default_factory=lambda: defaultdict(_Line))

    def add(self, prices: PriceList, sums: UsageSums) -> dict[LineKey, Charge]:
        """What this adds to each line that it touches."""
        before: dict[LineKey, tuple[int, int]] = {}
        for key, quantity, parts in chain(_parts(prices, sums), self._corrected(sums)):
            line = self._lines[key]
            before.setdefault(key, (line.quantity, line.micro_cents))
            line.quantity += quantity
            line.parts += parts
        added = {}
        for key, (quantity, micro_cents) in before.items():
            line = self._lines[key]
            line.micro_cents = line.parts // self._divisor(key.metric)
            added[key] = Charge(line.quantity - quantity, line.micro_cents - micro_cents)
        return added

    @property
    def lines(self) -> dict[LineKey, Charge]:
        return {key: Charge(each.quantity, each.micro_cents) for key, each in self._lines.items()}

    @property
    def micro_cents(self) -> int:
        return sum(line.micro_cents for line in self._lines.values())

    def copy(self) -> "MonthTally":
        copied = {
            key: _Line(each.quantity, each.parts, each.micro_cents)
            for key, each in self._lines.items()
        }
        return MonthTally(self.month, defaultdict(_Line, copied))

    def _corrected(self, sums: UsageSums) -> Iterator[tuple[LineKey, int, int]]:
        for one in sums.corrections:
            parts = one.micro_cents * self._divisor(one.meter)
            yield LineKey(one.instance_id, one.team_id, one.meter), one.quantity, parts

    def _divisor(self, metric: str) -> int:
        """How many parts a micro-cent has."""
        if metric == EGRESS:
            return GB
        return self.month.seconds * (GB if metric == BACKUPS else 1)


def _parts(prices: PriceList, sums: UsageSums) -> Iterable[tuple[LineKey, int, int]]:
    """Whose line, the quantity, and what it costs in parts of a micro-cent."""
    regions = _Regions(prices)
    for span in sums.spans:
        rates = regions[span.region]
        if span.runs:
            key = LineKey(span.instance_id, span.team_id, COMPUTE)
            yield key, span.seconds, span.seconds * rates.sizes[span.size]
        if gigabytes := billed_gb(span.size, span.storage_bytes):
            quantity = gigabytes * span.seconds
            key = LineKey(span.instance_id, span.team_id, STORAGE)
            yield key, quantity, quantity * rates.storage_gb_month
    for one in sums.meters:
        is_free = one.plan in prices.unmetered_plans
        parts = 0 if is_free else one.quantity * _rate(prices, regions[one.region], one.meter)
        yield LineKey(one.instance_id, one.team_id, one.meter), one.quantity, parts
    for each in sums.plans:
        parts = each.seconds * prices.plans[each.plan]
        yield LineKey(None, None, PLAN), each.seconds, parts


def _rate(prices: PriceList, rates: Rates, meter: str) -> int:
    """Parts of a micro-cent for one of the unit of the meter."""
    if meter == EGRESS:
        return rates.egress_gb
    if meter == SEATS:
        return prices.seat_month * _HOUR_S
    of_month = rates.backup_gb_month if meter == BACKUPS else rates.domain_month
    return of_month * _HOUR_S


class _Regions(dict[str | None, Rates]):
    def __init__(self, prices: PriceList) -> None:
        super().__init__()
        self._prices = prices

    def __missing__(self, region: str | None) -> Rates:
        found = self[region] = self._prices.in_region(region)
        return found
