"""Invoices: what one says of a month, making it for good, and what becomes of it."""

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

from sqlalchemy.orm import Session

from control.billing import consolidating, granting, referring
from control.billing.consolidating import PaidPart
from control.events import publish
from control.policy import invoices as policy
from control.policy.invoices import CorrectedUsage, InvoiceLine
from control.policy.issuers import Issuer, Party
from control.policy.months import Month, month_of
from control.policy.prices import PriceBook
from storage.access import enterprises, organizations
from storage.access.organizations import Organization
from storage.billing import credit_ledger, customers, invoices
from storage.billing.credit_ledger import Used
from storage.billing.invoices import Invoice
from storage.database import now
from storage.events import audit

FINALIZED: Final = "invoice.finalized.v1"
PAID: Final = "invoice.paid.v1"
REFUNDED: Final = "credit_note.refunded.v1"


@dataclass(frozen=True)
class Draft:
    """What an organization is to pay for a month so far, before credits and tax; exact.

    `org_ids` are those whose usage it is, its own first.
    """

    lines: list[InvoiceLine]
    org_ids: list[str]

    @property
    def micro_cents(self) -> int:
        return sum(line.micro_cents for line in self.lines)

    def cents_of(self, org_id: str) -> int:
        """Of one of several organizations."""
        return policy.subtotal(line for line in self.lines if line.org_id == org_id)

    @property
    def subtotal_cents(self) -> int:
        return policy.subtotal(self.lines)


def draft(db: Session, book: PriceBook, org_id: str, month: Month) -> Draft:
    """Reads only; of a month that is over it is always the same."""
    until = min(now(db), month.end)
    parts = consolidating.parts(db, book, org_id, month, until)
    names = organizations.names_of(db, parts.keys()) if len(parts) > 1 else {}
    found = [
        line
        for one, part in parts.items()
        for line in policy.lines(
            part.used, _corrections(part), (one, names[one]) if names else None
        )
    ]
    return Draft(policy.whole(found), list(parts))


def _corrections(part: PaidPart) -> list[CorrectedUsage]:
    return [
        CorrectedUsage(month_of(one.hour).name, one.meter, one.quantity, one.micro_cents)
        for one in part.corrections
    ]


def finalize(
    db: Session, book: PriceBook, issuer: Issuer, org: Organization, month: Month, drafted: Draft
) -> Invoice | None:
    """Make the invoice of a month that is over, with the next number, and use credits for it.

    What corrections leave below nothing is granted as a credit. None where there is nothing to
    charge. Raises StateConflict where one of the month is in force.
    """
    net = subtotal = drafted.subtotal_cents
    carried = policy.carried_over(drafted.lines)
    if not subtotal and not carried:
        return None
    invoice_id, at = invoices.new_id(), now(db)
    customer = customer_of(db, issuer, org)
    currency = book.currency
    used = _use_credits(db, org.id, invoice_id, drafted, currency, month)
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
    if carried:
        why, source = f"corrections on the invoice {made.number}", f"carried_over:{made.id}"
        granting.grant(
            db, org.id, "granted", carried, currency, reason=why, source=source, months=None
        )
    return made


def _use_credits(
    db: Session, org_id: str, invoice_id: str, drafted: Draft, currency: str, month: Month
) -> list[Used]:
    """Of each subsidiary for what it used itself, and then of whoever pays for all that is left."""
    left, used = drafted.subtotal_cents, list[Used]()
    own_last = [*sorted(one for one in drafted.org_ids if one != org_id), org_id]
    for each in own_last:
        cents = left if each == org_id else min(left, drafted.cents_of(each))
        taken = credit_ledger.use(db, each, invoice_id, cents, currency=currency, until=month.end)
        left -= sum(one.amount_cents for one in taken)
        used += taken
    return used


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
    """As the operator has described it, or by its name, in the issuer's country.

    Invoices of an enterprise go to the address of its terms.
    """
    enterprise = enterprises.find(db, org.id)
    email = "" if enterprise is None else enterprise.billing_email or ""
    known = {"name": org.name, "country": issuer.party.country, "email": email}
    return Party(**{**known, **customers.details_of(db, org.id)})


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
