"""Documents of invoices and credit notes: set as PDF once, kept, and sent."""

from sqlalchemy.orm import Session

from control.billing import einvoices, invoice_links, invoice_pdf, readers
from control.mail import Letter, billing_letters
from control.policy.prices import amount
from control.services import Services
from control.work import Operation, enqueue, workflow
from control.workflows.access import mail
from storage.access import organizations
from storage.billing.invoices import Invoice, InvoiceDocument
from storage.database import now


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
    for email in readers.of(db, invoice):
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


def begin(db: Session, made: Invoice) -> None:
    """Have the document of an invoice or a credit note made, once this transaction is committed."""
    enqueue(db, document, made.id, {"org_id": made.org_id, "invoice_id": made.id})
