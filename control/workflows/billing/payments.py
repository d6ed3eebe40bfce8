"""Payments: a payment provider is kept in step with what is due of each invoice that it collects.

All that is done with an invoice has one lane, so what the provider tells of it never overtakes
what it is told.
"""

from dataclasses import asdict
from functools import partial
from typing import Any, Final

from sqlalchemy.orm import Session

from control.billing import collecting, invoicing
from control.billing.chosen_provider import provider_of
from control.billing.collecting import Notice
from control.billing.providers import PaymentProvider, ProviderRefused
from control.settings import ControlSettings
from control.work import GiveUp, Operation, enqueue, workflow
from control.workflows.billing import documents
from storage.billing import invoices, payments
from storage.billing.invoices import Invoice
from storage.billing.payments import InvoicePayment
from storage.database import Database
from storage.errors import StateConflict

_KEYS_KEPT_S: Final = 20 * 3600
"""A provider does the same thing again where it has forgotten its key, as Stripe does in a day."""


def _collecting_failed(op: Operation, db: Session, reason: str) -> None:
    payment = payments.of_invoice(db, op.args["invoice_id"])
    if payment is not None:
        payment.problem = reason[:1000]


@workflow(
    "payments.collect",
    deadline_s=_KEYS_KEPT_S,
    on_failure=_collecting_failed,
    asks_strangers=True,
)
def collect(op: Operation) -> None:
    """Have the provider ask for what is due; less after a credit note, and nothing if it is void.

    What was paid there and is credited is paid back there.
    """
    provider = provider_of(op.services.settings)
    if provider is None:
        return
    payment, invoice = _found(op.database, op.args["invoice_id"])
    try:
        if payment.ended is not None:
            _refund(op, provider, payment, invoice)
        elif payment.url is not None or payment.asked_cents:
            _correct(op, provider, payment, invoice)
        elif invoice.due_cents:
            _begin(op, provider, payment, invoice)
    except ProviderRefused as refused:
        raise GiveUp(f"the payment provider refused: {refused}") from refused


def pursue(
    db: Session, settings: ControlSettings, invoice: Invoice, *, is_new: bool = False
) -> None:
    """Bring the provider into step once this transaction is committed, if it is to collect it.

    A new invoice is collected where a provider is set by then; a former one never.
    """
    if settings.stripe is None:
        return
    if is_new and invoice.due_cents:
        payments.begin(db, invoice.org_id, invoice.id)
    elif payments.of_invoice(db, invoice.id) is None:
        return
    args = {"org_id": invoice.org_id, "invoice_id": invoice.id}
    enqueue(db, collect, _lane(invoice.id), args)


def resume(db: Session, settings: ControlSettings, number_or_id: str) -> Invoice:
    """Have an open invoice collected, also one that was made without a provider, or given up.

    Raises RecordNotFound, and StateConflict where nothing is to be collected.
    """
    invoice = invoices.hold(db, number_or_id)
    if settings.stripe is None:
        raise StateConflict("no payment provider is set (stripe_api_key_file)")
    if invoice.is_credit_note or not invoice.due_cents:
        raise StateConflict(f"nothing is to be paid for {invoice.number}")
    pursue(db, settings, invoice, is_new=payments.of_invoice(db, invoice.id) is None)
    return invoice


@workflow("payments.hear", deadline_s=86_400)
def hear(op: Operation) -> None:
    """What the provider has told of an invoice, exactly once."""
    notice = Notice.of(op.args)

    def apply(db: Session) -> None:
        for made in collecting.hear(db, op.services.settings.issuer, notice):
            documents.begin(db, made)

    op.step_in_transaction("apply", apply)


def note(db: Session, notice_id: str, notice: Notice) -> bool:
    """Take a notice of the provider; False where it was taken before."""
    if not payments.take(db, notice_id, notice.kind):
        return False
    enqueue(db, hear, _lane(notice.invoice_id), asdict(notice))
    return True


def _lane(invoice_id: str) -> str:
    return f"{invoice_id}:payment"


def _found(database: Database, invoice_id: str) -> tuple[InvoicePayment, Invoice]:
    with database.read() as db:
        return db.get_one(InvoicePayment, invoice_id), db.get_one(Invoice, invoice_id)


def _begin(
    op: Operation, provider: PaymentProvider, payment: InvoicePayment, invoice: Invoice
) -> None:
    """Each id is kept as soon as it is known, so that whoever goes on later makes no second one."""
    # As a step: under one key the same is asked for each time.
    cents = int(op.step("amount", lambda: invoice.due_cents))
    with op.database.read() as db:
        wanted = collecting.wanted(db, invoice, cents)
        known = payments.customer_of(db, invoice.org_id)
    customer_id = str(known or op.step("customer", lambda: provider.customer(wanted)))
    op.step_in_transaction(
        "know_customer", lambda db: payments.know_customer(db, invoice.org_id, customer_id)
    )
    of = payment.provider_invoice_id
    of = str(of or op.step("invoice", lambda: provider.invoice(wanted, customer_id)))
    _keep(op, "know_invoice", invoice, provider_invoice_id=of)
    url = op.step("ask", lambda: provider.ask(wanted, customer_id, of))
    _keep(op, "keep", invoice, url=url, asked_cents=cents, problem=None)


def _correct(
    op: Operation, provider: PaymentProvider, payment: InvoicePayment, invoice: Invoice
) -> None:
    """The provider asks for what is due by now, or for nothing."""
    of, asked = str(payment.provider_invoice_id), payment.asked_cents
    ended = {"void": "void", "paid": "elsewhere"}.get(invoice.status)
    if ended == "elsewhere" and not invoice.paid_cents:
        ended = "void"  # what was left of it has been paid by credits
    if ended == "void":
        op.step("void", lambda: provider.void(of, f"{invoice.id}:void"))
    elif ended == "elsewhere":
        op.step("settle", lambda: provider.settle(of, f"{invoice.id}:settle"))
    due = int(op.step("due", lambda: asked if ended else invoice.due_cents))
    if due < asked:
        op.step("reduce", lambda: provider.reduce(of, asked - due, f"{invoice.id}:to:{due}"))
    _keep(op, "keep_correction", invoice, ended=ended, asked_cents=due, problem=None)


def _refund(
    op: Operation, provider: PaymentProvider, payment: InvoicePayment, invoice: Invoice
) -> None:
    if payment.ended != "paid":
        return
    with op.database.read() as db:
        found = collecting.refunds(db, invoice)
    of = str(payment.provider_invoice_id)
    for note_id, cents in op.step("refunds", lambda: found).items():
        op.step(f"refund {note_id}", partial(provider.refund, of, cents, f"{note_id}:refund"))
        op.step_in_transaction(f"refunded {note_id}", partial(_refunded, note_id))


def _refunded(note_id: str, db: Session) -> None:
    """Unless the operator was first, and has noted it."""
    if invoices.hold(db, note_id).status == "open":
        invoicing.pay(db, note_id)


def _keep(op: Operation, step: str, invoice: Invoice, **values: Any) -> None:
    def keep(db: Session) -> None:
        held = payments.of_invoice(db, invoice.id)
        for name, value in values.items():
            setattr(held, name, value)

    op.step_in_transaction(step, keep)
