"""Correcting invoices: a credit note takes from one, and a month can be invoiced again."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy.orm import Session

from control.billing import invoicing
from control.billing.invoicing import Draft
from control.policy import credit_notes
from control.policy.credit_notes import Left, NoteSums
from control.policy.invoices import Tax
from control.policy.issuers import Issuer
from control.policy.months import month_named
from control.policy.prices import PriceBook
from storage.access import organizations
from storage.billing import credit_ledger, invoices
from storage.billing.invoices import CREDIT_NOTE, Invoice
from storage.database import now
from storage.errors import StateConflict

CREDITED: Final = "credit_note.finalized.v1"
VOIDED: Final = "invoice.voided.v1"
Ask = Callable[[credit_notes.Lines, Mapping[int, Left]], Mapping[int, int]]
"""What is to be credited of which line, given the lines and what is left of each."""


def credit(
    db: Session, issuer: Issuer, number_or_id: str, ask: Ask, reason: str
) -> tuple[Invoice, Invoice]:
    """Make a credit note; gives it, and the invoice as it is then.

    An open invoice is void if nothing of it is left, and paid if what is left was paid by credits;
    of a paid one, the note is to be paid back. Credits that the note reaches are given back.
    Raises RecordNotFound, NotCredited, and StateConflict for what is no invoice in force.
    """
    invoice = invoices.hold(db, number_or_id)
    if invoice.is_credit_note or invoice.status == "void":
        what = "a credit note" if invoice.is_credit_note else "void"
        raise StateConflict(f"{invoice.number} is {what}, and cannot be credited")
    note = _note(db, issuer, invoice, ask, reason)
    db.refresh(invoice)
    invoicing.tell(db, note, "credit_note.finalize", CREDITED)
    if invoice.status == "open" and invoice.is_all_credited:
        invoice.void(now(db), reason)
        invoicing.tell(db, invoice, "invoice.void", VOIDED)
    elif invoice.status == "open" and not invoice.due_cents:
        invoice.pay(now(db))
        invoicing.tell(db, invoice, "invoice.pay", invoicing.PAID)
    db.flush()
    return note, invoice


def void(db: Session, issuer: Issuer, number_or_id: str, reason: str) -> tuple[Invoice, Invoice]:
    """A credit note of all that is left of an open invoice. Raises as `credit`."""
    held = invoices.hold(db, number_or_id)
    if held.status != "open" or held.is_credit_note:
        raise StateConflict(
            f"{held.number} is {held.status}: only an open invoice can be voided"
            if not held.is_credit_note
            else f"{held.number} is a credit note, and stays so"
        )
    return credit(db, issuer, held.id, everything, reason)


def everything(_lines: credit_notes.Lines, left: Mapping[int, Left]) -> Mapping[int, int]:
    return credit_notes.all_of(left)


def drafted_again(db: Session, book: PriceBook, number_or_id: str) -> Draft:
    """What the month of an invoice costs, by what is metered now. Raises RecordNotFound."""
    of = invoices.find(db, number_or_id)
    return invoicing.draft(db, book, of.org_id, month_named(of.month))


def reissue(
    db: Session, book: PriceBook, issuer: Issuer, number_or_id: str, drafted: Draft
) -> Invoice | None:
    """Invoice the month of an invoice again, of which nothing is left.

    The customer is named as it is described now. Raises RecordNotFound, and StateConflict where an
    invoice of the month is in force.
    """
    of = invoices.hold(db, number_or_id)
    if of.is_credit_note or not (of.status == "void" or of.is_all_credited):
        raise StateConflict(f"{of.number} is in force: credit all of it first, or void it")
    org = organizations.fetch(db, of.org_id)
    return invoicing.finalize(db, book, issuer, org, month_named(of.month), drafted)


def _note(db: Session, issuer: Issuer, invoice: Invoice, ask: Ask, reason: str) -> Invoice:
    notes = invoices.notes_of(db, invoice)
    noted = [note.lines for note in notes]
    asked = ask(invoice.lines, credit_notes.left_of(invoice.lines, noted))
    tax = Tax(invoice.tax_category, invoice.tax_rate, invoice.tax_reason)
    made = credit_notes.correct(invoice.lines, noted, _sums(invoice), _sums(*notes), tax, asked)
    back = credit_ledger.give_back(db, invoice.id, made.credits_cents)
    at, refund = now(db), made.total_cents if invoice.status == "paid" else 0
    values: dict[str, Any] = {
        name: getattr(invoice, name)
        for name in ("org_id", "month", "currency", "issuer", "customer", *_TAXED)
    }
    return invoices.create(
        db,
        f"{issuer.credit_note_prefix}{at:%Y}",
        **values,
        id=invoices.new_id(),
        kind=CREDIT_NOTE,
        corrects_id=invoice.id,
        corrects={"number": invoice.number, "issued_on": invoice.issued_at.date().isoformat()},
        reason=reason,
        lines=made.lines,
        credits=[one.as_json() for one in back],
        subtotal_cents=made.subtotal_cents,
        credits_cents=made.credits_cents,
        tax_cents=made.tax_cents,
        total_cents=made.total_cents,
        refund_cents=refund,
        issued_at=at,
        due_at=at,
        status="open" if refund else "paid",
        paid_at=None if refund else at,
    )


_TAXED: Final = ("tax_category", "tax_rate", "tax_reason")


def _sums(*of: Invoice) -> NoteSums:
    return NoteSums(sum(one.subtotal_cents for one in of), sum(one.credits_cents for one in of))
