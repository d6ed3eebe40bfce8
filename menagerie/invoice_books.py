"""What the operator's commands for invoices do, and how they tell it."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import astuple, fields
from typing import Any, Final

from control.billing import invoicing, journal
from control.events.envelope import timestamp
from control.policy.customer_details import is_vat_id
from control.policy.issuers import fault_of_party
from control.policy.months import Month, month_named
from control.policy.prices import amount
from control.services import Services
from control.workflows.billing import invoices as work
from control.workflows.billing import payments
from menagerie.errors import SettingsError
from storage.access import organizations
from storage.billing import customers, invoices
from storage.billing import payments as payment_rows
from storage.billing.invoices import Invoice
from storage.events import audit

_PAGE: Final = 500
_MONTH: Final = re.compile("[0-9]{4}-(0[1-9]|1[0-2])")
_FIRST: Final = "1970-01"
_LAST: Final = "9999-12"


def run(services: Services) -> str:
    """Raises SettingsError where no invoices are made."""
    issuer = services.settings.issuer
    if issuer is None or not services.settings.prices.is_on:
        raise SettingsError("no invoices are made: set invoice_issuer, and leave money on")
    with services.database.read() as db:
        due = list(work.due(issuer, services.database.now(db)))
    for month in due:
        while work.finalize_next(services, issuer, month):
            pass
    made = [len(list(of_month(services, month.name))) for month in due[-1:]]
    if not due:
        return f"nothing is due: the first month is {issuer.first_month}, billed two days after it"
    return f"all invoices up to {due[-1].name} are made; that month has {made[0]}"


def listed(services: Services, month: str) -> list[dict[str, Any]]:
    found = list(of_month(services, _named(month)))
    with services.database.read() as db:
        moment = services.database.now(db)
        problems = payment_rows.problems(db, [one.id for one in found])
    return [
        {
            "id": one.id,
            "kind": one.kind,
            "number": one.number,
            "corrects": one.corrects and one.corrects["number"],
            "org_id": one.org_id,
            "status": one.status_at(moment),
            "subtotal_cents": one.subtotal_cents,
            "credits_cents": one.credits_cents,
            "tax_cents": one.tax_cents,
            "total_cents": one.total_cents,
            "due_cents": one.due_cents,
            "currency": one.currency,
            "due_at": timestamp(one.due_at),
            "payment_problem": problems.get(one.id),
        }
        for one in found
    ]


def journal_csv(services: Services, month: str) -> str:
    """With a header; amounts in cents, debits positive."""
    text = io.StringIO()
    written = csv.writer(text)
    written.writerow(each.name for each in fields(journal.JournalEntry))
    for invoice in of_month(services, _named(month)):
        for entry in journal.entries(invoice):
            at, *rest = astuple(entry)
            written.writerow([timestamp(at), *rest])
    return text.getvalue()


def pay(services: Services, number_or_id: str) -> str:
    with services.database.write() as db:
        paid = invoicing.pay(db, number_or_id)
        if not paid.is_credit_note:
            payments.pursue(db, services.settings, paid)
        back = " back" if paid.is_credit_note else ""
        return f"{paid.number}: {amount(paid.paid_cents, paid.currency)} paid{back}"


def collect(services: Services, number_or_id: str) -> str:
    with services.database.write() as db:
        invoice = payments.resume(db, services.settings, number_or_id)
        due = amount(invoice.due_cents, invoice.currency)
        return f"{invoice.number}: {due} are collected with the payment provider"


def set_customer(services: Services, org_id: str, given: dict[str, str]) -> str:
    """Raises SettingsError with what is wrong with a value."""
    wrong = [f"--{name.replace('_', '-')} {why}" for name in given if (why := _fault(name, given))]
    if wrong:
        raise SettingsError("; ".join(wrong))
    with services.database.write() as db:
        org = organizations.fetch(db, org_id)
        details = {**customers.details_of(db, org.id), **given}
        customers.describe(db, org.id, details)
        told = {"changed": sorted(given)}
        audit.append(db, org.id, "customer.update", actor_kind="system", target=org.id, detail=told)
    shown = ", ".join(f"{name}: {value}" for name, value in sorted(details.items()))
    return f"{org_id}: {shown or 'nothing is known'}"


def _fault(name: str, given: dict[str, str]) -> str:
    found = fault_of_party(name, given[name])
    if not found and name == "vat_id" and not is_vat_id(given[name]):
        return "is no VAT ID of that country"
    return found


def named_month(month: str) -> Month:
    """Raises SettingsError for what is none."""
    if not _MONTH.fullmatch(month) or not _FIRST <= month < _LAST:
        raise SettingsError(f"{month!r} is no month: write it as 2026-11")
    return month_named(month)


def _named(month: str) -> str:
    return named_month(month).name


def of_month(services: Services, month: str) -> Iterator[Invoice]:
    """All invoices of a month, oldest first, some hundreds at a time."""
    after = ""
    with services.database.read() as db:
        while found := invoices.of_month(db, month, limit=_PAGE, after=after):
            yield from found
            after = found[-1].id
