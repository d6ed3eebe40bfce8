"""A month that is over, and whose invoices are to be made."""

from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import select

from contract_tests import invoicing, stripe_account
from contract_tests.workflows import known
from contract_tests.workflows.stage import Stage
from control.billing.collecting import Notice
from control.policy.invoices import FINAL_AFTER
from control.workflows.billing import invoices as invoice_work
from control.workflows.billing import payments
from storage.access.organizations import Organization
from storage.billing import customers
from storage.billing.payments import InvoicePayment
from storage.database import now


def of_a_month_of_a_plan(then: str) -> Callable[[Stage], None]:
    """That is over, of an organization that pays; `then` is the workflow that is begun."""

    def begin(stage: Stage) -> None:
        with stage.database.write() as db:
            db.get_one(Organization, stage.org_id).plan = "team"
            # Nobody here is a member, whom Stripe could write to.
            customers.describe(db, stage.org_id, {"email": "accounts@example.net"})
        with stage.database.read() as db:
            month = invoicing.next_month(now(db))
        issuer = invoicing.issuer_from(month)
        pays = then.startswith("payments.")
        stripe = stripe_account.for_ever().account if pays else None
        settings = replace(stage.services.settings, issuer=issuer, stripe=stripe)
        stage.services = replace(stage.services, settings=settings)
        with stage.database.read() as db:
            left = month.end + FINAL_AFTER - now(db)
        stage.pass_time(left.total_seconds() + 1)
        if then != "invoices.finalize":
            while invoice_work.finalize_next(stage.services, issuer, month):
                pass
        if then == "payments.hear":
            while stage.turn():
                pass
            with stage.database.write() as db:
                payment = db.scalars(select(InvoicePayment)).one()
                theirs = str(payment.provider_invoice_id)
                paid = Notice("invoice.paid", theirs, payment.invoice_id, 10_000, "USD")
                assert payments.note(db, "evt_1", paid)
        if then != "invoices.finalize":
            return
        with stage.database.write() as db:
            known.enqueue(db, then, f"test:{then}", {})

    return begin
