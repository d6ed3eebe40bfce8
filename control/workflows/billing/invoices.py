"""Invoices: made once for each organization when a month is over."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from control.billing import invoicing
from control.policy.invoices import FINAL_AFTER
from control.policy.issuers import Issuer
from control.policy.months import Month, month_named, months
from control.services import Services
from control.work import Operation, Schedule, workflow
from control.workflows.billing import documents, payments
from storage.billing import invoice_runs
from storage.billing.invoices import Invoice
from storage.database import now


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
            follow(db, services, made)
        return True


def follow(db: Session, services: Services, made: Invoice) -> None:
    """What comes after an invoice, once this transaction is committed."""
    documents.begin(db, made)
    payments.pursue(db, services.settings, made, is_new=True)


def due(issuer: Issuer, moment: datetime) -> Iterator[Month]:
    """The months whose invoices are to be made by now, oldest first."""
    for month in months(month_named(issuer.first_month).begin, moment):
        if month.end + FINAL_AFTER <= moment:
            yield month


SCHEDULE: Final = Schedule("invoices", finalize, every_s=3600)
