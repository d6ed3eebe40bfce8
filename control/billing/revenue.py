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
    """Of the invoices of one month in one currency, less its credit notes, in cents.

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
        """A credit note takes back what its invoice said, as a void one without notes does."""
        sign = -1 if invoice.is_credit_note else 1
        self.invoices += not invoice.is_credit_note
        self.void += invoice.status == "void"
        if invoice.status == "void" and not invoice.is_all_credited:
            return
        for line in invoice.lines:
            self.by_metric[line["metric"]] += sign * line["amount_cents"]
        for name in ("subtotal", "credits", "tax", "total"):
            self.sums[name] += sign * getattr(invoice, f"{name}_cents")
        self.sums["paid"] += sign * invoice.paid_cents
        self.sums["open"] += sign * (invoice.total_cents - invoice.paid_cents)

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
