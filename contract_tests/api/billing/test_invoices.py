"""Invoices: made once of what was used, never changed, and seen by whoever may."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DatabaseError

from contract_tests import invoicing as billing
from contract_tests import written
from contract_tests.api.billing import billed
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import NEVER, is_problem
from control.billing import charges, invoice_links, invoicing, journal
from control.policy.invoices import PERCENT
from control.policy.months import Month
from control.policy.prices import nearest_cents
from menagerie import credit_grants, credit_notes, invoice_books
from menagerie.errors import SettingsError
from storage.billing import invoices
from storage.billing.invoices import Invoice
from storage.billing.whose import Whose
from storage.errors import RecordNotFound, StateConflict


@pytest.fixture
def tenant(own_house: House) -> Tenant:
    return billed.with_an_instance(own_house)


@pytest.fixture
def invoice(own_house: House, month: Month, tenant: Tenant) -> Invoice:
    billing.billed(own_house, month)
    return billing.invoice_of(own_house, tenant, month)


def fresh(house: House, tenant: Tenant) -> str:
    """A session, as those from before the month have expired."""
    return house.session(tenant.owner.id)


def test_its_lines_are_what_was_used_to_the_micro_cent(
    own_house: House, month: Month, tenant: Tenant, invoice: Invoice
) -> None:
    house = own_house
    with house.database.read() as db:
        whose = Whose(org_id=tenant.org_id)
        tally = charges.tally(db, house.services.settings.prices, whose, month, month.end)
    assert sum(line["micro_cents"] for line in invoice.lines) == tally.micro_cents > 0
    for line in invoice.lines:
        of_metric = [one for key, one in tally.lines.items() if key.metric == line["metric"]]
        assert line["micro_cents"] == sum(one.micro_cents for one in of_metric)
        assert line["quantity"] == sum(one.quantity for one in of_metric)
        assert line["amount_cents"] == nearest_cents(line["micro_cents"])
    assert [line["metric"] for line in invoice.lines][:2] == ["plan", "compute"]
    # A month of the plan and of the size, to the cent.
    assert [line["amount_cents"] for line in invoice.lines][:2] == [10_000, 1_500]
    assert invoice.subtotal_cents == sum(line["amount_cents"] for line in invoice.lines)
    assert invoice.tax_cents == (2 * invoice.subtotal_cents * 1900 + PERCENT) // (2 * PERCENT)
    assert invoice.total_cents == invoice.subtotal_cents + invoice.tax_cents
    with house.database.read() as db:
        told = written.events_of(db, tenant.org_id)[-1]
        entry = written.audited(db, tenant.org_id)[0]
    assert (told.type, entry.action) == ("invoice.finalized.v1", "invoice.finalize")
    assert told.data["total_cents"] == invoice.total_cents


def test_it_is_listed_with_links_that_need_no_session(
    own_house: House, tenant: Tenant, invoice: Invoice
) -> None:
    house = own_house
    (shown,) = house.get(f"{tenant.path}/invoices", fresh(house, tenant)).json()["items"]
    assert (shown["id"], shown["status"]) == (invoice.id, "open")
    assert shown["customer"]["name"] == "Difference Engines"
    token = shown["hosted_url"].rpartition("token=")[2]
    seen = house.get(f"/v1/invoices/{token}").json()
    links = {"hosted_url", "pdf_url", "payment_url"}
    assert seen == {name: value for name, value in shown.items() if name not in links}
    path = "/v1/invoices/" + shown["pdf_url"].rpartition("/v1/invoices/")[2]
    downloaded = house.get(path)
    assert downloaded.headers["content-type"] == "application/pdf"
    assert downloaded.content.startswith(b"%PDF-1.7")
    assert house.get(path).content == downloaded.content
    house.settle()
    letter = house.letters.last
    assert letter.to == tenant.owner.email
    assert invoice.number in letter.subject
    (linked,) = re.findall(r"/account/invoice\?token=(\S+)", letter.text)
    assert house.get(f"/v1/invoices/{linked}").json()["id"] == invoice.id
    house.pass_time(invoice_links.LASTS.total_seconds() + 60)
    is_problem(house.get(f"/v1/invoices/{token}"), 404, "not_found")
    (shown,) = house.get(f"{tenant.path}/invoices", fresh(house, tenant)).json()["items"]
    assert shown["status"] == "overdue"


def test_a_link_that_was_not_signed_shows_nothing(house: House) -> None:
    key, now = house.services.settings.cursor_key, house.now()
    of_nobody = invoice_links.token_of(key, f"invoice_{NEVER}", now)
    over = invoice_links.token_of(key, f"invoice_{NEVER}", now - timedelta(days=31))
    other_key = invoice_links.token_of(b"x" * 32, f"invoice_{NEVER}", now)
    said, _, mac = of_nobody.rpartition(".")
    later = f"{said.rpartition('.')[0]}.{10**11}.{mac}"
    for token in (of_nobody, over, other_key, later, said, f"{said}.", "x", "a.b.c"):
        for path in (f"/v1/invoices/{token}", f"/v1/invoices/{token}/pdf"):
            is_problem(house.get(path), 404, "not_found")


def test_credits_are_used_before_anything_is_paid(
    own_house: House, month: Month, tenant: Tenant
) -> None:
    house = own_house
    rich = house.tenant("Rich", plan="team")
    for one, cents in ((tenant, "10"), (rich, "100000")):
        credit_grants.grant(
            house.services, one.org_id, cents, reason="so", months=1, reference=None
        )
    billing.billed(house, month)
    part, whole = (billing.invoice_of(house, one, month) for one in (tenant, rich))
    assert (part.credits_cents, part.status) == (1_000, "open")
    net = part.subtotal_cents - 1_000
    assert part.total_cents == net + part.tax_cents
    assert (whole.credits_cents, whole.total_cents) == (whole.subtotal_cents, 0)
    assert whole.status == "paid"
    found = house.get(f"{rich.path}/credits", fresh(house, rich)).json()
    assert found["items"][0]["used_cents"] == whole.subtotal_cents
    credit_notes.credit(house.services, part.number, [], None, "wrong")
    found = house.get(f"{tenant.path}/credits", fresh(house, tenant)).json()
    assert found["items"][0]["used_cents"] == 0


def test_it_is_paid_or_void_and_then_stays(own_house: House, invoice: Invoice) -> None:
    house = own_house
    with house.database.write() as db:
        assert invoicing.pay(db, invoice.number).status == "paid"
    with pytest.raises(StateConflict, match="is paid"):
        invoice_books.pay(house.services, invoice.number)
    with pytest.raises(StateConflict, match="is paid"):
        credit_notes.void(house.services, invoice.number, "no")
    with pytest.raises(RecordNotFound):
        invoice_books.pay(house.services, "INV2026-999999")


def test_made_again_by_many_at_once_there_is_one(
    own_house: House, month: Month, tenant: Tenant
) -> None:
    """Numbers without a gap, whoever makes the invoices at the same time, and however often."""
    house = own_house
    tenants = [tenant, *(house.tenant(f"Org {number}", plan="solo") for number in range(5))]
    billing.month_ends(house, month)

    def run(_number: int) -> None:
        try:
            invoice_books.run(house.services)
        except StateConflict:
            return  # as of the month's row, which another has begun

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(run, range(6)))
    invoice_books.run(house.services)
    with house.database.read() as db:
        found = list(db.scalars(select(Invoice)))
    assert {one.org_id for one in found} >= {one.org_id for one in tenants}
    assert len({one.org_id for one in found}) == len(found)
    numbers = sorted(int(one.number.rpartition("-")[2]) for one in found)
    assert numbers == list(range(1, len(found) + 1))


FORBIDDEN = {
    "total": "UPDATE invoices SET total_cents = 0",
    "lines": "UPDATE invoices SET lines = '[]'",
    "month": "UPDATE invoices SET month = '2000-01'",
    "credited": "UPDATE invoices SET credited_cents = 1",
    "all credited": "UPDATE invoices SET credited_subtotal_cents = subtotal_cents",
    "kind": "UPDATE invoices SET kind = 'credit_note', corrects_id = id",
    "no invoice": "DELETE FROM invoices",
    "no document": "DELETE FROM invoice_documents",
    "another document": "UPDATE invoice_documents SET pdf = ''",
}


def test_no_statement_changes_it(own_house: House, invoice: Invoice) -> None:
    for statement in FORBIDDEN.values():
        with pytest.raises(DatabaseError), own_house.database.engine.begin() as connection:
            connection.execute(text(statement))
    with own_house.database.engine.begin() as connection:
        connection.execute(text("UPDATE invoices SET status = 'void'"))
    with pytest.raises(DatabaseError), own_house.database.engine.begin() as connection:
        connection.execute(text("UPDATE invoices SET status = 'open'"))
    with own_house.database.read() as db:
        assert db.get_one(Invoice, invoice.id).lines == invoice.lines


def test_the_journal_sums_to_zero(own_house: House, month: Month, tenant: Tenant) -> None:
    house = own_house
    others = [house.tenant(f"Org {number}", plan="team") for number in range(2)]
    credit_grants.grant(
        house.services, tenant.org_id, "7.01", reason="so", months=1, reference=None
    )
    billing.billed(house, month)
    invoice_books.pay(house.services, billing.invoice_of(house, tenant, month).number)
    wrong = billing.invoice_of(house, others[0], month)
    credit_notes.credit(house.services, wrong.id, [], None, "no")
    rows = invoice_books.journal_csv(house.services, month.name).splitlines()
    assert rows[0] == "at,invoice,org_id,account,amount_cents,currency"
    amounts = [int(row.split(",")[4]) for row in rows[1:]]
    assert len(amounts) > 10
    assert sum(amounts) == 0
    with house.database.read() as db:
        voided = db.get_one(Invoice, wrong.id)
        both = [*journal.entries(voided), *journal.entries(*invoices.notes_of(db, voided))]
    sums = {one.account: 0 for one in both}
    for one in both:
        sums[one.account] += one.amount_cents
    assert sums == {"receivable": 0, "revenue": 0, "tax_owed": 0}
    listed = invoice_books.listed(house.services, month.name)
    statuses = {one["org_id"]: one["status"] for one in listed if one["kind"] == "invoice"}
    assert [statuses[one.org_id] for one in (tenant, *others)] == ["paid", "void", "open"]


def test_nothing_is_invoiced_without_an_issuer_or_before_it_is_due(
    own_house: House, tenant: Tenant
) -> None:
    house = own_house
    with pytest.raises(SettingsError, match="invoice_issuer"):
        invoice_books.run(house.services)
    month = billing.starts_billing(house)
    house.pass_time((month.end - house.now()).total_seconds() + 86_400)
    assert "nothing is due" in invoice_books.run(house.services)
    assert house.get(f"{tenant.path}/invoices", fresh(house, tenant)).json()["items"] == []


def test_who_costs_nothing_gets_no_invoice(own_house: House, month: Month, tenant: Tenant) -> None:
    free = own_house.tenant("Free", plan="free")
    assert "that month has" in billing.billed(own_house, month)
    with own_house.database.read() as db:
        assert billing.find(db, free.org_id, month) is None
        assert billing.find(db, tenant.org_id, month) is not None


def customers() -> Iterator[tuple[dict[str, str], tuple[str, int]]]:
    yield {"country": "FR", "vat_id": "FR40303265045"}, ("AE", 0)
    yield {"country": "FR"}, ("S", 1900)
    yield {"country": "US", "name": "Engines Inc."}, ("O", 0)
    yield {"email": "accounts@example.net"}, ("S", 1900)


def test_the_customer_decides_the_tax(own_house: House, month: Month) -> None:
    house = own_house
    expected = {}
    for details, tax in customers():
        one = house.tenant("Org", plan="solo")
        invoice_books.set_customer(house.services, one.org_id, details)
        expected[one] = tax
    billing.billed(house, month)
    for one, tax in expected.items():
        made = billing.invoice_of(house, one, month)
        assert (made.tax_category, made.tax_rate) == tax
        assert (made.tax_cents == 0) == (tax[1] == 0)
    assert "accounts@example.net" in {letter.to for letter in house.letters.sent.values()}


@pytest.mark.parametrize(
    ("name", "value"),
    [("vat_id", "DE136695975"), ("country", "Germany"), ("name", ""), ("street", "a\nb")],
)
def test_what_is_no_customer_is_refused(house: House, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"--{name.replace('_', '-')}"):
        invoice_books.set_customer(house.services, house.tenant().org_id, {name: value})


def test_roles_and_strangers(house: House) -> None:
    tenant = house.tenant()
    path = f"{tenant.path}/invoices"
    for role, status in (("admin", 200), ("auditor", 200), ("developer", 403), ("member", 403)):
        assert house.get(path, house.member(tenant.org_id, role).session).status_code == status
    is_problem(house.get(path, house.tenant().key), 404, "not_found")
