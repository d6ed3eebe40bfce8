"""What an invoice says: its lines, each rounded once, what credits leave of them, and the tax."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, Final

from control.policy import rating
from control.policy.issuers import EU, Issuer, Party
from control.policy.prices import nearest_cents
from control.policy.rating import Charge
from control.policy.sizes import GB

FINAL_AFTER: Final = timedelta(days=2)
"""How long after a month its invoices are made: what is metered late is part of it."""
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


def lines(sums: Mapping[str, Charge], of: tuple[str, str] | None = None) -> list[InvoiceLine]:
    """One for each metric that costs anything: all of the month, whosever instances it was.

    `of` is the id and the name of an organization, where the invoice is for several.
    """
    return [_line(metric, sums[metric], of) for metric in _SHOWN if _costs(sums, metric)]


def _costs(sums: Mapping[str, Charge], metric: str) -> bool:
    return metric in sums and sums[metric].micro_cents != 0


def _line(metric: str, charge: Charge, of: tuple[str, str] | None) -> InvoiceLine:
    name, units, shown = _SHOWN[metric]
    hundredths = (200 * charge.quantity + units) // (2 * units)
    description = f"{name}: {hundredths // 100:,}.{hundredths % 100:02} {shown}"
    cents = nearest_cents(charge.micro_cents)
    told = metric, description, charge.quantity, charge.micro_cents, cents
    if of is None:
        return InvoiceLine(*told)
    return replace(InvoiceLine(*told), description=f"{of[1]}: {description}", org_id=of[0])


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
