"""Invoices: made once for each organization when a month is over, set as PDF, and sent."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from control.billing import einvoices, invoice_links, invoice_pdf, invoicing
from control.mail import Letter, billing_letters
from control.policy.invoices import FINAL_AFTER
from control.policy.issuers import Issuer
from control.policy.months import Month, month_named, months
from control.policy.prices import amount
from control.services import Services
from control.work import Operation, Schedule, enqueue, workflow
from control.workflows.access import mail
from storage.access import memberships, organizations, users
from storage.billing import invoice_runs
from storage.billing.invoices import Invoice, InvoiceDocument
from storage.database import now

LETTERS_MAX: Final = 20
_MEMBERS_MAX: Final = 200


@workflow("invoices.finalize", deadline_s=6 * 3600)
def finalize(op: Operation) -> None:
    """Goes on where it, or whoever came before it, was interrupted."""
    issuer = op.services.settings.issuer
    if issuer is None or not op.services.settings.prices.is_on:
        return
    with op.database.read() as db:
        overdue = list(due(issuer, now(db)))
    for month in overdue:
        while finalize_next(op.services, issuer, month):
            pass


def finalize_next(services: Services, issuer: Issuer, month: Month) -> bool:
    """The invoice of the next organization, in one transaction with how far the month is.

    False where none is left. Rating, which takes long, holds nothing: of a month that is over it
    says the same again.
    """
    book = services.settings.prices
    with services.database.read() as db:
        run = invoice_runs.find(db, month.name)
        if run is not None and run.is_done:
            return False
        after = "" if run is None else run.after
        org = invoice_runs.next_org(db, after)
        drafted = None if org is None else invoicing.draft(db, book, org.id, month)
    with services.database.write() as db:
        held = invoice_runs.hold(db, month.name)
        if held.after != after or held.is_done:
            return not held.is_done  # another worker was first
        if org is None or drafted is None:
            held.is_done = True
            return False
        held.after = org.id
        made = invoicing.finalize(db, book, issuer, org, month, drafted)
        if made is not None:
            follow(db, made)
        return True


def follow(db: Session, made: Invoice) -> None:
    """What comes after an invoice or a credit note, once this transaction is committed."""
    enqueue(db, document, made.id, {"org_id": made.org_id, "invoice_id": made.id})


@workflow("invoices.document", deadline_s=86_400)
def document(op: Operation) -> None:
    """Set the invoice as PDF, keep that, and tell people, in one transaction."""
    invoice_id = op.args["invoice_id"]
    with op.database.read() as db:
        invoice = db.get_one(Invoice, invoice_id)
    pdf = invoice_pdf.pdf_of(invoice)

    def keep(db: Session) -> None:
        db.add(InvoiceDocument(invoice_id=invoice_id, org_id=invoice.org_id, pdf=pdf))
        _send(db, op.services, invoice)

    op.step_in_transaction("keep", keep)


def _send(db: Session, services: Services, invoice: Invoice) -> None:
    org = organizations.fetch(db, invoice.org_id)
    settings = services.settings
    token = invoice_links.token_of(settings.cursor_key, invoice.id, now(db))
    link = f"{settings.base_url.rstrip('/')}/account/invoice?token={token}"
    told = {"org": org.name, "link": link, "base_url": settings.base_url}
    for email in _readers(db, invoice):
        letter = _letter(invoice, to=email, **told)
        mail.notify(db, services.sealer, letter, org.id)


def _letter(invoice: Invoice, **told: str) -> Letter:
    total = amount(invoice.total_cents, invoice.currency)
    if invoice.corrects is None:
        return billing_letters.invoice_finalized(
            **told,
            number=invoice.number,
            month=invoice.month,
            total=total,
            due=f"{invoice.due_at:%Y-%m-%d}" if invoice.total_cents else None,
        )
    return billing_letters.credit_note_finalized(
        **told,
        number=invoice.number,
        corrects=invoice.corrects["number"],
        reason=str(invoice.reason),
        told=f"by {total}. {einvoices.settlement(invoice)}",
    )


def _readers(db: Session, invoice: Invoice) -> list[str]:
    """The address that the operator has for invoices, or those of the owners."""
    if invoice.customer["email"]:
        return [invoice.customer["email"]]
    members = memberships.page(db, invoice.org_id, limit=_MEMBERS_MAX, after=None).items
    owners = [one.user_id for one in members if one.role == "owner"]
    people = users.of_ids(db, owners).values()
    return [person.email for person in people if person.is_person][:LETTERS_MAX]


def due(issuer: Issuer, moment: datetime) -> Iterator[Month]:
    """The months whose invoices are to be made by now, oldest first."""
    for month in months(month_named(issuer.first_month).begin, moment):
        if month.end + FINAL_AFTER <= moment:
            yield month


SCHEDULE: Final = Schedule("invoices", finalize, every_s=3600)
