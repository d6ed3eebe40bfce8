"""Revenue: what invoices of a month came to, and what a month would have cost at other prices."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from sqlalchemy.orm import Session

from control.billing import invoicing
from control.policy.invoices import CARRIED_OVER
from control.policy.months import Month
from control.policy.prices import BEGINNING, PriceBook
from control.policy.rating import UNITS
from storage.billing.invoices import Invoice

LINES: Final = (*UNITS, CARRIED_OVER)
"""Metrics of invoice lines, each with a sum of its own."""


@dataclass
class Revenue:
    """Of the invoices of one month in one currency, in cents; void ones are only counted.

    As the journal has it: `subtotal` is its `revenue`, `tax` its `tax_owed`, `credits` its
    `credits_granted`, `paid` its `cash` and `open` what is left of its `receivable`.
    """

    month: str
    currency: str
    invoices: int = 0
    void: int = 0
    by_metric: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)

    def add(self, invoice: Invoice) -> None:
        if invoice.status == "void":
            self.void += 1
            return
        self.invoices += 1
        for line in invoice.lines:
            self.by_metric[line["metric"]] += line["amount_cents"]
        self.sums["subtotal"] += invoice.subtotal_cents
        self.sums["credits"] += invoice.credits_cents
        self.sums["tax"] += invoice.tax_cents
        self.sums["total"] += invoice.total_cents
        self.sums["paid" if invoice.status == "paid" else "open"] += invoice.total_cents

    def as_json(self) -> dict[str, Any]:
        amounts = {f"{name}_cents": self.by_metric[name] for name in LINES}
        sums = ("subtotal", "credits", "tax", "total", "paid", "open")
        return {
            "month": self.month,
            "currency": self.currency,
            "invoices": self.invoices,
            "void": self.void,
            **amounts,
            **{f"{name}_cents": self.sums[name] for name in sums},
        }


class PricePreview(NamedTuple):
    """What an organization is charged for a month before credits and taxes, in cents."""

    org_id: str
    old_cents: int
    new_cents: int

    @property
    def difference_cents(self) -> int:
        return self.new_cents - self.old_cents


def throughout(book: PriceBook) -> PriceBook:
    """Its last list, for all times: what is to come, of a month that is over."""
    return replace(book, lists=(replace(book.lists[-1], since=BEGINNING),))


def previews(
    db: Session, old: PriceBook, new: PriceBook, org_id: str, month: Month
) -> Iterator[PricePreview]:
    """Of one organization, if it is charged anything. What corrections cost stays as it is."""
    sums = [invoicing.draft(db, book, org_id, month).subtotal_cents for book in (old, new)]
    if any(sums):
        yield PricePreview(org_id, *sums)
