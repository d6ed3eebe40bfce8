"""Invoices: what one says of a month, making it for good, and what becomes of it."""

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

from sqlalchemy.orm import Session

from control.billing import charges, referring
from control.events import publish
from control.policy import invoices as policy
from control.policy.invoices import InvoiceLine
from control.policy.issuers import Issuer, Party
from control.policy.months import Month
from control.policy.prices import PriceBook
from storage.access.organizations import Organization
from storage.billing import credit_ledger, customers, invoices
from storage.billing.invoices import Invoice
from storage.billing.whose import Whose
from storage.database import now
from storage.events import audit

FINALIZED: Final = "invoice.finalized.v1"
PAID: Final = "invoice.paid.v1"
REFUNDED: Final = "credit_note.refunded.v1"


@dataclass(frozen=True)
class Draft:
    """What was used in a month so far, before credits and tax; `micro_cents` is exact."""

    lines: list[InvoiceLine]
    micro_cents: int

    @property
    def subtotal_cents(self) -> int:
        return policy.subtotal(self.lines)


def draft(db: Session, book: PriceBook, org_id: str, month: Month) -> Draft:
    """Reads only; of a month that is over it is always the same."""
    until = min(now(db), month.end)
    tally = charges.tally(db, book, Whose(org_id=org_id), month, until)
    return Draft(policy.lines(tally.lines), tally.micro_cents)


def finalize(
    db: Session, book: PriceBook, issuer: Issuer, org: Organization, month: Month, drafted: Draft
) -> Invoice | None:
    """Make the invoice of a month that is over, with the next number, and use credits for it.

    None where there is nothing to charge. Raises StateConflict where one of the month is in force.
    """
    net = subtotal = drafted.subtotal_cents
    if not subtotal:
        return None
    invoice_id, at = invoices.new_id(), now(db)
    customer = customer_of(db, issuer, org)
    currency = book.currency
    used = credit_ledger.use(db, org.id, invoice_id, subtotal, currency=currency, until=month.end)
    net -= (credited := sum(one.amount_cents for one in used))
    tax = policy.tax(issuer, customer)
    total = net + tax.cents(net)
    made = invoices.create(
        db,
        f"{issuer.number_prefix}{at:%Y}",
        id=invoice_id,
        org_id=org.id,
        month=month.name,
        currency=currency,
        lines=[line.as_json() for line in drafted.lines],
        credits=[one.as_json() for one in used],
        subtotal_cents=subtotal,
        credits_cents=credited,
        tax_category=tax.category,
        tax_rate=tax.rate,
        tax_reason=tax.reason,
        tax_cents=tax.cents(net),
        total_cents=total,
        issuer={**asdict(issuer.party), "iban": issuer.iban},
        customer=asdict(customer),
        issued_at=at,
        due_at=at + timedelta(days=issuer.due_days),
        status="open" if total else "paid",
        paid_at=None if total else at,
    )
    tell(db, made, "invoice.finalize", FINALIZED)
    return made


def pay(db: Session, number_or_id: str) -> Invoice:
    """That what is due of it was paid; of a credit note, that it was paid back.

    Raises RecordNotFound, and StateConflict unless it is open.
    """
    invoice = invoices.hold(db, number_or_id)
    invoice.pay(now(db))
    if invoice.is_credit_note:
        tell(db, invoice, "credit_note.refund", REFUNDED)
        return invoice
    tell(db, invoice, "invoice.pay", PAID)
    referring.invoice_paid(db, invoice.org_id, invoice.paid_cents, invoice.currency)
    return invoice


def customer_of(db: Session, issuer: Issuer, org: Organization) -> Party:
    """As the operator has described it, or by its name, in the issuer's country."""
    return Party(
        **{"name": org.name, "country": issuer.party.country, **customers.details_of(db, org.id)}
    )


def tell(db: Session, invoice: Invoice, action: str, kind: str) -> None:
    """What became of it, in the audit log and as an event."""
    told: dict[str, Any] = {
        "number": invoice.number,
        "month": invoice.month,
        "total_cents": invoice.total_cents,
        "currency": invoice.currency,
    }
    if invoice.corrects is not None:
        told["corrects"] = invoice.corrects["number"]
    publish(db, invoice.org_id, kind, {"invoice_id": invoice.id, **told})
    audit.append(db, invoice.org_id, action, actor_kind="system", target=invoice.id, detail=told)
