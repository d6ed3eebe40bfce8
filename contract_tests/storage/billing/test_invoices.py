"""What the database keeps of invoices: numbers without gaps, and no more credited than there is."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import column, select, table, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session

from contract_tests.databases import DIALECTS, Databases
from storage import identifiers, migrations
from storage.access import organizations
from storage.billing import invoices
from storage.billing.invoices import Invoice, InvoiceDocument
from storage.database import Database
from storage.errors import StateConflict
from storage.records import Record

AT = datetime(2026, 12, 3, tzinfo=UTC)
SIDE = {"name": "A", "street": "", "postcode": "", "city": "", "country": "DE", "vat_id": ""}


def values(org_id: str, **more: Any) -> dict[str, Any]:
    return {
        "id": invoices.new_id(),
        "org_id": org_id,
        "month": "2026-11",
        "currency": "EUR",
        "lines": [],
        "credits": [],
        "subtotal_cents": 100,
        "credits_cents": 0,
        "tax_category": "S",
        "tax_rate": 1900,
        "tax_cents": 19,
        "total_cents": 119,
        "issuer": SIDE,
        "customer": SIDE,
        "issued_at": AT,
        "due_at": AT,
        "status": "open",
        **more,
    }


def note(of: Invoice, **more: Any) -> dict[str, Any]:
    sums = {"subtotal_cents": 40, "tax_cents": 8, "total_cents": 48}
    corrects = {"number": of.number, "issued_on": "2026-12-03"}
    chosen = {**sums, "kind": "credit_note", "corrects_id": of.id, "corrects": corrects}
    return values(**{**chosen, "org_id": of.org_id, "reason": "so", **more})


@pytest.fixture
def invoice(database: Database) -> Invoice:
    with database.write() as db:
        org = organizations.create(db, name="Org", slug=identifiers.new("o").lower())
        return invoices.create(db, "INV2026", **values(org.id))


def test_a_note_is_counted_by_the_database(database: Database, invoice: Invoice) -> None:
    with database.write() as db:
        invoices.create(db, "CN2026", **note(invoice))
    with database.read() as db:
        found = db.get_one(Invoice, invoice.id)
        assert (found.credited_cents, found.credited_subtotal_cents) == (48, 40)
        assert (found.due_cents, found.is_all_credited) == (119 - 48, False)
        assert [one.number for one in invoices.notes_of(db, found)] == ["CN2026-000001"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"total_cents": 120},
        {"subtotal_cents": 101},
        {"currency": "USD"},
        {"corrects_id": None},
        {"kind": "invoice"},
        {"refund_cents": 49},
        {"credited_cents": 1},
    ],
)
def test_what_is_no_note_of_the_invoice_is_refused(
    database: Database, invoice: Invoice, wrong: dict[str, Any]
) -> None:
    with pytest.raises((DatabaseError, StateConflict)), database.write() as db:
        invoices.create(db, "CN2026", **note(invoice, **wrong))
    with database.write() as db:
        other = organizations.create(db, name="Org", slug=identifiers.new("o").lower())
    with pytest.raises(DatabaseError), database.write() as db:
        invoices.create(db, "CN2026", **note(invoice, org_id=other.id))
    with database.read() as db:
        assert db.get_one(Invoice, invoice.id).credited_cents == 0
        assert list(db.scalars(select(invoices.InvoiceNumber.last))) == [1]


def test_no_note_is_credited_by_another(database: Database, invoice: Invoice) -> None:
    with database.write() as db:
        made = invoices.create(db, "CN2026", **note(invoice))
    with pytest.raises(DatabaseError), database.write() as db:
        invoices.create(db, "CN2026", **note(made))


def test_a_month_has_one_invoice_in_force(database: Database, invoice: Invoice) -> None:
    with pytest.raises(StateConflict, match="made already"), database.write() as db:
        invoices.create(db, "INV2026", **values(invoice.org_id))
    all_of_it = {"subtotal_cents": 100, "tax_cents": 19, "total_cents": 119}
    with database.write() as db:
        invoices.create(db, "CN2026", **note(invoice, **all_of_it))
    with database.write() as db:
        assert invoices.create(db, "INV2026", **values(invoice.org_id)).number.endswith("-000002")


@pytest.mark.every_database  # what locks is the database
def test_numbers_have_no_gap_whoever_asks_at_once(database: Database, invoice: Invoice) -> None:
    """Also of a series that nobody has begun; whoever fails takes no number."""

    def make(number: int) -> bool:
        try:
            with database.write() as db:
                held = invoices.hold(db, invoice.id)
                cents = {"subtotal_cents": 9, "tax_cents": 1, "total_cents": 10}
                invoices.create(db, "CN2026", **note(held, **cents))
                assert number % 3
        except (AssertionError, DatabaseError):
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(make, range(18)))
    assert sum(made) == 11  # 119 cents for 10 each
    with database.read() as db:
        found = invoices.notes_of(db, invoice)
        assert db.get_one(Invoice, invoice.id).credited_cents == 110
    assert sorted(one.number for one in found) == [f"CN2026-{n:06}" for n in range(1, 12)]


@pytest.fixture(params=DIALECTS)
def empty(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Database]:
    database = Database(databases.empty(str(request.param)))
    yield database
    database.dispose()


def former(db: Session) -> None:
    """An invoice with its document, as they were before there were credit notes."""
    org_id = organizations.create(db, name="Org", slug="org").id
    chosen = {**values(org_id, id="invoice_1", status="paid"), "number": "INV2026-000001"}
    rows = {
        "invoices": {**chosen, "created_at": AT},
        "invoice_documents": {
            "invoice_id": "invoice_1",
            "org_id": org_id,
            "pdf": b"%PDF",
            "created_at": AT,
        },
    }
    for name, told in rows.items():
        described = Record.metadata.tables[name]
        columns = [column(one, described.c[one].type) for one in told]
        db.execute(table(name, *columns).insert().values(**told))


def test_invoices_of_former_versions_stay(empty: Database) -> None:
    """With their documents; and back again, but for what has a credit note."""
    migrations.upgrade(empty.engine, "202611301530")
    with empty.write() as db:
        former(db)
    migrations.upgrade(empty.engine)
    with empty.read() as db:
        found = db.get_one(Invoice, "invoice_1")
        assert (found.kind, found.paid_cents, found.credited_cents) == ("invoice", 119, 0)
        assert db.get_one(InvoiceDocument, "invoice_1").pdf == b"%PDF"
    for statement in ("DELETE FROM invoices", "UPDATE invoice_documents SET pdf = ''"):
        with pytest.raises(DatabaseError), empty.engine.begin() as connection:
            connection.execute(text(statement))
    migrations.downgrade(empty.engine, "202611301530")
    with pytest.raises(DatabaseError), empty.engine.begin() as connection:
        connection.execute(text("UPDATE invoices SET total_cents = 0"))
    migrations.upgrade(empty.engine)
    with empty.write() as db:
        invoices.create(db, "CN2026", **note(db.get_one(Invoice, "invoice_1")))
    with pytest.raises(DatabaseError):
        migrations.downgrade(empty.engine, "202611301530")
