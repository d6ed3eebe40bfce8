"""An issuer for tests, and invoices that are made of real usage."""

from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract_tests.api.harness import House, Tenant
from control.policy.issuers import Issuer, Party
from control.policy.months import Month, month_of
from menagerie import invoice_books
from storage.billing.invoices import Invoice

SELLER = Party(
    name="Analytical Engines GmbH",
    street="Unter den Linden 1",
    postcode="10117",
    city="Berlin",
    country="DE",
    vat_id="DE136695976",
    email="billing@example.com",
)


def issuer_from(month: Month) -> Issuer:
    """Issues the invoices of the month, and of those after it."""
    return Issuer(SELLER, month.name, iban="DE89370400440532013000", taxes={"DE": 1900})


def next_month(moment: datetime) -> Month:
    return month_of(month_of(moment).end)


def starts_billing(house: House) -> Month:
    """The next month is the first with invoices: a whole one, whichever day it is today."""
    month = next_month(house.now())
    settings = replace(house.services.settings, issuer=issuer_from(month))
    object.__setattr__(house.services, "settings", settings)
    return month


def month_ends(house: House, month: Month) -> None:
    """And the two days until its invoices are due."""
    left = month.end + timedelta(days=2) - house.now()
    house.pass_time(left.total_seconds() + 60)


def billed(house: House, month: Month) -> str:
    """Make all invoices that are due, with their documents and letters."""
    month_ends(house, month)
    told = invoice_books.run(house.services)
    house.settle()
    return told


def find(db: Session, org_id: str, month: Month) -> Invoice | None:
    """The first one of the month."""
    rows = select(Invoice).where(Invoice.org_id == org_id, Invoice.month == month.name)
    return db.scalars(rows.order_by(Invoice.id).limit(1)).one_or_none()


def invoice_of(house: House, tenant: Tenant, month: Month) -> Invoice:
    with house.database.read() as db:
        found = find(db, tenant.org_id, month)
    assert found is not None
    return found
