"""The journal of a month's invoices and credit notes for the books: double entry, sums to zero."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from storage.billing.invoices import Invoice


@dataclass(frozen=True)
class JournalEntry:
    """Debits are positive, credits negative, in cents."""

    at: datetime
    invoice: str
    org_id: str
    account: str
    amount_cents: int
    currency: str


def entries(invoice: Invoice) -> Iterator[JournalEntry]:
    """What it means when it is made, and when it is paid or void; each of these sums to zero.

    A credit note takes back what its invoice said. So an invoice that is void because all of it is
    credited needs nothing more; one that was voided without a credit note does.
    """
    sign = -1 if invoice.is_credit_note else 1
    made = {
        "receivable": invoice.total_cents,
        "credits_granted": invoice.credits_cents,
        "revenue": -invoice.subtotal_cents,
        "tax_owed": -invoice.tax_cents,
    }
    made = {account: sign * cents for account, cents in made.items()}
    yield from _entries(invoice, invoice.issued_at, made)
    if invoice.paid_at is not None:
        paid = sign * invoice.paid_cents
        yield from _entries(invoice, invoice.paid_at, {"cash": paid, "receivable": -paid})
    if invoice.voided_at is not None and not invoice.is_all_credited:
        undone = {account: -cents for account, cents in made.items()}
        yield from _entries(invoice, invoice.voided_at, undone)


def _entries(invoice: Invoice, at: datetime, moved: dict[str, int]) -> Iterator[JournalEntry]:
    for account, cents in moved.items():
        if cents:
            yield JournalEntry(at, invoice.number, invoice.org_id, account, cents, invoice.currency)
