"""Collecting invoices with a payment provider: what it is to ask for, and what it tells of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sqlalchemy.orm import Session

from control.billing import crediting, invoicing, readers
from control.billing.providers import Wanted
from control.policy.issuers import Issuer
from control.policy.months import month_named
from storage.billing import invoices, payments
from storage.billing.invoices import Invoice
from storage.billing.payments import InvoicePayment
from storage.database import now
from storage.errors import RecordNotFound

FAILED: Final = "invoice.payment_failed.v1"
PAID: Final = "invoice.paid"
DECLINED: Final = "invoice.payment_failed"
VOIDED: Final = "invoice.voided"
HEARD: Final = frozenset({PAID, DECLINED, VOIDED})
"""The kinds of the provider's events that mean something here."""
_VOIDED: Final = "voided at the payment provider"
_LEAST: Final = timedelta(days=1)


@dataclass(frozen=True)
class Notice:
    """What the provider tells of its invoice: `cents` were paid of it."""

    kind: str
    provider_invoice_id: str
    invoice_id: str
    cents: int
    currency: str

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Notice":
        return cls(**{name: told[name] for name in cls.__dataclass_fields__})


def wanted(db: Session, invoice: Invoice, cents: int) -> Wanted:
    """So much of the invoice, of the customer that it names."""
    due_at = max(invoice.due_at, invoice.issued_at + _LEAST)
    return Wanted(
        invoice_id=invoice.id,
        number=invoice.number,
        description=f"Invoice {invoice.number}, {month_named(invoice.month).begin:%B %Y}",
        org_id=invoice.org_id,
        name=invoice.customer["name"],
        email=next(iter(readers.of(db, invoice)), ""),
        cents=cents,
        currency=invoice.currency,
        due_at=due_at,
    )


def refunds(db: Session, invoice: Invoice) -> dict[str, int]:
    """What is to be paid back, in cents, by the id of the credit note."""
    return {note.id: note.due_cents for note in invoices.notes_of(db, invoice) if note.due_cents}


def hear(db: Session, issuer: Issuer | None, notice: Notice) -> list[Invoice]:
    """Do what follows from a notice; gives the credit notes that were made.

    Whatever does not fit is for the operator, as a `problem` of the payment, and changes nothing
    else: another amount or currency, a payment of what is void, another invoice at the provider.
    """
    payment = payments.of_invoice(db, notice.invoice_id)
    if payment is None or payment.provider_invoice_id != notice.provider_invoice_id:
        return []
    try:
        invoice = invoices.hold(db, notice.invoice_id)
    except RecordNotFound:
        return []
    if notice.kind == PAID:
        return _paid(db, payment, invoice, notice)
    if notice.kind == VOIDED:
        return _voided(db, issuer, payment, invoice)
    if invoice.status == "open":
        invoice.payment_failed_at = now(db)
        invoicing.tell(db, invoice, "invoice.fail_payment", FAILED)
    return []


def _paid(db: Session, payment: InvoicePayment, invoice: Invoice, notice: Notice) -> list[Invoice]:
    if payment.ended is not None:
        return []
    told = f"{notice.cents} of a hundredth {notice.currency}"
    if invoice.status != "open":
        payment.problem = f"the invoice is {invoice.status}, and {told} were paid at the provider"
    elif (notice.cents, notice.currency) != (invoice.due_cents, invoice.currency):
        payment.problem = (
            f"{told} were paid at the provider, and {invoice.due_cents} {invoice.currency} are due"
        )
    else:
        payment.ended, payment.problem = "paid", None
        invoicing.pay(db, invoice.id)
    return []


def _voided(
    db: Session, issuer: Issuer | None, payment: InvoicePayment, invoice: Invoice
) -> list[Invoice]:
    payment.ended = payment.ended or "void"
    if invoice.status != "open":
        return []
    if issuer is None:
        payment.problem = "it is void at the provider; set invoice_issuer and void it here too"
        return []
    note, _ = crediting.credit(db, issuer, invoice.id, crediting.everything, _VOIDED)
    return [note]
