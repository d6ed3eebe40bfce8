"""What an invoice says: its lines, each rounded once, what credits leave of them, and the tax."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, Final, NamedTuple

from control.policy import rating
from control.policy.issuers import EU, Issuer, Party
from control.policy.prices import MICRO_CENTS, nearest_cents
from control.policy.rating import Charge
from control.policy.sizes import GB

FINAL_AFTER: Final = timedelta(days=2)
"""How long after a month its invoices are made: what is metered late is part of it."""
CARRIED_OVER: Final = "carried_over"
"""In place of a metric: the line that makes a bill of less than nothing nothing."""
PERCENT: Final = 10_000
"""A whole, in hundredths of a percent."""
_HOUR_S: Final = 3600
_SHOWN: Final[Mapping[str, tuple[str, int, str]]] = {
    rating.PLAN: ("Plan", _HOUR_S, "hours"),
    rating.SEATS: ("Seats", 1, "seat hours"),
    rating.COMPUTE: ("Compute", _HOUR_S, "instance hours"),
    rating.STORAGE: ("Storage beyond the size", _HOUR_S, "GB hours"),
    rating.BACKUPS: ("Backups", GB, "GB hours"),
    rating.EGRESS: ("Egress", GB, "GB"),
    rating.DOMAINS: ("Custom domains", 1, "domain hours"),
}
"""By metric and in this order: what a line is called, and how many of its units are one shown."""


@dataclass(frozen=True)
class InvoiceLine:
    """`micro_cents` is exact, `amount_cents` the nearest cent, upwards from a half.

    `quantity` is in the unit of the metric, as in usage.
    """

    metric: str
    description: str
    quantity: int
    micro_cents: int
    amount_cents: int
    org_id: str | None = None
    """Of an invoice for several organizations, whose it is."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Tax:
    """`category` is one of EN 16931: S standard, AE reverse charge, O outside the scope of VAT."""

    category: str
    rate: int
    reason: str | None

    def cents(self, net_cents: int) -> int:
        """Rounded to the nearest cent, upwards from a half."""
        return (2 * net_cents * self.rate + PERCENT) // (2 * PERCENT)


class CorrectedUsage(NamedTuple):
    """Of a meter, in an hour of a month (as in 2026-11) that is billed; part of the charges."""

    month: str
    metric: str
    quantity: int
    micro_cents: int


def lines(
    sums: Mapping[str, Charge],
    corrections: Iterable[CorrectedUsage] = (),
    of: tuple[str, str] | None = None,
) -> list[InvoiceLine]:
    """One for each metric that costs anything: all of the month, whosever instances it was.

    After them one for each earlier month and metric that is corrected. `of` is the id and the name
    of an organization, where the invoice is for several.
    """
    found: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for metric, charge in sums.items():
        _add(found["", metric], charge.quantity, charge.micro_cents)
    for one in corrections:
        _add(found["", one.metric], -one.quantity, -one.micro_cents)
        _add(found[one.month, one.metric], one.quantity, one.micro_cents)
    metrics = list(_SHOWN)
    order = sorted(found, key=lambda key: (key[0], metrics.index(key[1])))
    made = [_line(*key, *found[key]) for key in order if found[key][1]]
    if of is None:
        return made
    return [
        replace(line, description=f"{of[1]}: {line.description}", org_id=of[0]) for line in made
    ]


def whole(of: list[InvoiceLine]) -> list[InvoiceLine]:
    """A bill of less than nothing ends with a line that makes it nothing: so much is a credit."""
    below = -subtotal(of)
    return [*of, _carried_over(below)] if below > 0 else of


def _add(to: list[int], quantity: int, micro_cents: int) -> None:
    to[0] += quantity
    to[1] += micro_cents


def _line(month: str, metric: str, quantity: int, micro_cents: int) -> InvoiceLine:
    name, units, shown = _SHOWN[metric]
    sign, hundredths = "-" * (quantity < 0), (200 * abs(quantity) + units) // (2 * units)
    description = f"{name}: {sign}{hundredths // 100:,}.{hundredths % 100:02} {shown}"
    if month:
        description = f"Correction of {month}, {description[0].lower()}{description[1:]}"
    return InvoiceLine(metric, description, quantity, micro_cents, nearest_cents(micro_cents))


def _carried_over(cents: int) -> InvoiceLine:
    return InvoiceLine(CARRIED_OVER, "Carried over as a credit", 1, cents * MICRO_CENTS, cents)


def carried_over(of: Iterable[InvoiceLine]) -> int:
    """What is to be granted as a credit, in cents."""
    return sum(line.amount_cents for line in of if line.metric == CARRIED_OVER)


def subtotal(of: Iterable[InvoiceLine]) -> int:
    """In cents."""
    return sum(line.amount_cents for line in of)


def tax(issuer: Issuer, customer: Party) -> Tax:
    """Which tax an issuer adds for a customer."""
    if not issuer.taxes:
        return Tax("O", 0, "Not subject to VAT")
    home, country = issuer.party.country, customer.country
    if country != home and country not in EU:
        return Tax("O", 0, "Outside the scope of VAT: the customer is outside the EU")
    if country != home and customer.vat_id:
        return Tax("AE", 0, "Reverse charge: the customer owes the VAT")
    return Tax("S", issuer.taxes.get(country, issuer.taxes[home]), None)
