"""Credit notes: an invoice stays, what was wrong is taken off, and never more than it has."""

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract_tests import invoicing as billing
from contract_tests import written
from contract_tests.api.billing import billed
from contract_tests.api.harness import House, Tenant
from control.policy import credit_notes as policy
from control.policy.credit_notes import NotCredited, NoteSums
from control.policy.invoices import PERCENT, Tax
from control.policy.months import Month
from control.policy.prices import nearest_cents
from menagerie import credit_grants, credit_notes, invoice_books
from menagerie.errors import SettingsError
from storage.billing import invoices
from storage.billing.invoices import Invoice
from storage.errors import RecordNotFound, StateConflict


@pytest.fixture
def tenant(own_house: House) -> Tenant:
    return billed.with_an_instance(own_house)


@pytest.fixture
def invoice(own_house: House, month: Month, tenant: Tenant) -> Invoice:
    """Of 100.00 for the plan and 15.00 for an instance, of which a credit has paid 10.00."""
    credit_grants.grant(
        own_house.services, tenant.org_id, "10", reason="so", months=1, reference=None
    )
    billing.billed(own_house, month)
    made = billing.invoice_of(own_house, tenant, month)
    assert [line["amount_cents"] for line in made.lines] == [10_000, 1_500]
    assert (made.credits_cents, made.total_cents) == (1_000, 12_495)
    return made


def credited(house: House, of: Invoice, *lines: str, amount: str | None = None) -> Invoice:
    told = credit_notes.credit(house.services, of.number, lines, amount, "for the outage")
    with house.database.read() as db:
        return invoices.find(db, told.partition(":")[0])


def now_of(house: House, of: Invoice) -> Invoice:
    with house.database.read() as db:
        return invoices.find(db, of.id)


def listed(house: House, tenant: Tenant) -> list[dict[str, Any]]:
    path, session = f"{tenant.path}/invoices", house.session(tenant.owner.id)
    return list(house.get(path, session).json()["items"])


def test_a_line_is_credited_with_its_tax(
    own_house: House, tenant: Tenant, invoice: Invoice
) -> None:
    house = own_house
    note = credited(house, invoice, "2=12.50")
    assert re.fullmatch("CN[0-9]{4}-000001", note.number)
    (line,) = note.lines
    assert (line["metric"], line["amount_cents"], line["corrects_line"]) == ("compute", 1_250, 2)
    assert (note.subtotal_cents, note.credits_cents) == (1_250, 0)
    assert (note.tax_cents, note.total_cents) == (238, 1_488)
    house.settle()
    with house.database.read() as db:
        told = written.events_of(db, tenant.org_id)[-1]
        entry = written.audited(db, tenant.org_id)[0]
    assert (told.type, entry.action) == ("credit_note.finalized.v1", "credit_note.finalize")
    assert told.data["corrects"] == entry.detail["corrects"] == invoice.number
    shown, of = listed(house, tenant)
    assert (shown["kind"], of["kind"]) == ("credit_note", "invoice")
    assert (shown["id"], shown["status"], shown["due_cents"]) == (note.id, "paid", 0)
    assert shown["corrects"]["invoice_id"] == of["id"]
    assert (of["status"], of["credited_cents"]) == ("open", 1_488)
    assert of["due_cents"] == of["total_cents"] - 1_488 == 11_007
    token = shown["hosted_url"].rpartition("token=")[2]
    assert house.get(f"/v1/invoices/{token}").json()["reason"] == "for the outage"
    assert house.get(f"/v1/invoices/{token}/pdf").content.startswith(b"%PDF-1.7")
    letter = house.letters.last
    assert (letter.to, note.number in letter.subject) == (tenant.owner.email, True)
    for text in ("14.88 EUR" if note.currency == "EUR" else "14.88 USD", "for the outage"):
        assert text in letter.text
    assert "14.88" not in invoice_books.pay(house.services, invoice.number)
    assert now_of(house, invoice).paid_cents == 11_007


def test_all_that_is_left_makes_an_open_invoice_void(
    own_house: House, tenant: Tenant, invoice: Invoice
) -> None:
    house = own_house
    first, rest = credited(house, invoice, amount="100"), credited(house, invoice)
    assert [line["amount_cents"] for line in first.lines] == [8_696, 1_304]
    assert first.credits_cents == 0
    assert rest.credits_cents == 1_000
    assert first.total_cents + rest.total_cents == invoice.total_cents
    assert first.tax_cents + rest.tax_cents == invoice.tax_cents
    for number, line in enumerate(invoice.lines, 1):
        for name in ("micro_cents", "amount_cents", "quantity"):
            parts = [one for note in (first, rest) for one in note.lines]
            assert line[name] == sum(one[name] for one in parts if one["corrects_line"] == number)
    ended = now_of(house, invoice)
    assert (ended.status, ended.due_cents, ended.void_reason) == ("void", 0, "for the outage")
    path = f"{tenant.path}/credits"
    found = house.get(path, house.session(tenant.owner.id)).json()
    assert found["items"][0]["used_cents"] == 0
    with house.database.read() as db:
        kinds = [one.type for one in written.events_of(db, tenant.org_id)]
    assert kinds[-2:] == ["credit_note.finalized.v1", "invoice.voided.v1"]
    for act in (
        lambda: credited(house, invoice, amount="1"),
        lambda: credit_notes.void(house.services, invoice.number, "no"),
        lambda: invoice_books.pay(house.services, invoice.number),
    ):
        with pytest.raises(StateConflict, match="void"):
            act()


def test_what_credits_have_paid_is_given_back_last(own_house: House, invoice: Invoice) -> None:
    house = own_house
    note = credited(house, invoice, amount="105")
    assert (note.credits_cents, note.total_cents) == (0, invoice.total_cents)
    ended = now_of(house, invoice)
    assert (ended.status, ended.due_cents, ended.paid_cents) == ("paid", 0, 0)
    last = credited(house, invoice)
    assert (last.credits_cents, last.total_cents, last.status) == (1_000, 0, "paid")


def test_of_a_paid_invoice_it_is_paid_back(
    own_house: House, tenant: Tenant, invoice: Invoice
) -> None:
    house = own_house
    invoice_books.pay(house.services, invoice.number)
    note = credited(house, invoice, "2")
    assert (note.status, note.refund_cents, note.total_cents) == ("open", 1_785, 1_785)
    shown, of = listed(house, tenant)
    assert (shown["due_cents"], shown["status"]) == (1_785, "open")
    assert (of["status"], of["credited_cents"], of["due_cents"]) == ("paid", 1_785, 0)
    house.pass_time(40 * 86_400)
    assert listed(house, tenant)[0]["status"] == "open"  # nobody is late who is to be paid
    assert "17.85" in invoice_books.pay(house.services, note.number)
    with house.database.read() as db:
        assert written.events_of(db, tenant.org_id)[-1].type == "credit_note.refunded.v1"
    rows = invoice_books.journal_csv(house.services, invoice.month).splitlines()[1:]
    cash = [int(row.split(",")[4]) for row in rows if row.split(",")[3] == "cash"]
    assert cash == [invoice.total_cents, -1_785]
    assert sum(int(row.split(",")[4]) for row in rows) == 0
    with pytest.raises(StateConflict, match="is paid"):
        invoice_books.pay(house.services, note.number)
    with pytest.raises(StateConflict, match="credit note"):
        credit_notes.void(house.services, note.number, "no")
    with pytest.raises(StateConflict, match="credit note"):
        credited(house, note)


def test_a_void_month_is_invoiced_again_at_once(
    own_house: House, tenant: Tenant, month: Month, invoice: Invoice
) -> None:
    house = own_house
    invoice_books.set_customer(house.services, tenant.org_id, {"name": "Engines SARL"})
    told = credit_notes.void(house.services, invoice.number, "billed to the wrong company")
    house.settle()
    again, note, was = listed(house, tenant)
    assert (was["status"], note["total_cents"]) == ("void", was["total_cents"])
    assert again["number"] in told
    assert (again["status"], again["month"]) == ("open", month.name)
    assert (was["customer"]["name"], note["customer"]["name"]) == ("Difference Engines",) * 2
    assert again["customer"]["name"] == "Engines SARL"
    assert [one["micro_cents"] for one in again["lines"]] == [
        one["micro_cents"] for one in was["lines"]
    ]
    assert again["credits_cents"] == 1_000  # which the void one has given back
    assert again["pdf_url"] is not None
    with pytest.raises(StateConflict, match="made already"):
        credit_notes.reissue(house.services, was["number"])
    with pytest.raises(StateConflict, match="in force"):
        credit_notes.reissue(house.services, again["number"])
    house.pass_time(86_400)
    billing.billed(house, month) if house.now() < month.end else invoice_books.run(house.services)
    assert len(listed(house, tenant)) == 3


def test_what_is_all_credited_is_invoiced_again_when_asked(
    own_house: House, tenant: Tenant, invoice: Invoice
) -> None:
    house = own_house
    invoice_books.pay(house.services, invoice.number)
    credited(house, invoice)
    invoice_books.run(house.services)
    assert len(listed(house, tenant)) == 2
    assert credit_notes.reissue(house.services, invoice.number).startswith("INV")
    again = listed(house, tenant)[0]
    assert (again["status"], again["total_cents"]) == ("open", invoice.total_cents)


REFUSED: list[tuple[Sequence[str], str | None, str]] = [
    (["3"], None, "there is no line 3: 1 is Plan"),
    (["0"], None, "there is no line 0"),
    (["2=15.01"], None, "line 2 has 15.00 left"),
    (["2=0"], None, "at least 0.01"),
    (["2=1.234"], None, "two decimals"),
    (["2=-1"], None, "is no amount"),
    (["x"], None, "must be a line's number"),
    (["2=1", "2=1"], None, "twice"),
    (["2"], "1", "cannot be combined"),
    ([], "115.01", "at most 115.00"),
    ([], "x", "is no amount"),
]


def test_what_cannot_be_credited_is_refused_and_takes_no_number(
    own_house: House, tenant: Tenant, invoice: Invoice
) -> None:
    house = own_house
    for lines, amount, told in REFUSED:
        with pytest.raises(SettingsError, match=told):
            credit_notes.credit(house.services, invoice.number, lines, amount, "so")
    for reason in ("", "a\nb", "x" * 2_001):
        with pytest.raises(SettingsError, match="--reason"):
            credit_notes.credit(house.services, invoice.number, [], None, reason)
    with pytest.raises(RecordNotFound):
        credit_notes.credit(house.services, "INV2026-999999", [], None, "so")
    assert len(listed(house, tenant)) == 1
    assert credited(house, invoice).number.endswith("-000001")


def test_of_ten_at_once_no_more_is_credited_than_there_is(
    own_house: House, invoice: Invoice
) -> None:
    house = own_house

    def credit(_number: int) -> bool:
        try:
            credited(house, invoice, amount="20")
        except (SettingsError, StateConflict):
            return False
        return True

    with ThreadPoolExecutor(5) as threads:
        made = list(threads.map(credit, range(10)))
    assert sum(made) == 5
    with house.database.read() as db:
        notes = invoices.notes_of(db, invoice)
    numbers = sorted(int(one.number.rpartition("-")[2]) for one in notes)
    assert numbers == list(range(1, 6))
    assert now_of(house, invoice).credited_subtotal_cents == 10_000


AMOUNTS = st.lists(st.integers(1, 10**10), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(AMOUNTS, st.integers(0, 90), st.integers(0, 100), st.integers(0, 2_500), st.data())
def test_notes_add_up_to_the_invoice(
    amounts: list[int], corrected_percent: int, paid_percent: int, rate: int, data: st.DataObject
) -> None:
    """However it is credited: to the cent with tax, and to the micro-cent by line.

    Also where one line is less than nothing, as it corrects an earlier month.
    """
    if corrected_percent:
        amounts = [*amounts, -(sum(amounts) * corrected_percent // 100)]
    lines: list[dict[str, Any]] = [
        {"description": "x", "quantity": 7, "micro_cents": one, "amount_cents": nearest_cents(one)}
        for one in amounts
    ]
    subtotal = sum(line["amount_cents"] for line in lines)
    of, tax = NoteSums(subtotal, subtotal * paid_percent // 100), Tax("S", rate, None)
    noted: list[list[dict[str, Any]]] = []
    made: list[policy.Correction] = []
    left = policy.left_of(lines, noted)
    while whole := sum(one.amount_cents for one in left.values()):
        cents = data.draw(st.integers(1, whole + 1), label="cents")
        by_line = data.draw(st.booleans(), label="by line")
        number = data.draw(st.sampled_from(list(left)), label="line")
        most = min(left[number].amount_cents, whole) if by_line else whole
        try:
            if len(made) > 5:
                asked: Any = policy.all_of(left)
            elif by_line:
                asked = policy.chosen(lines, left, {number: cents})
            else:
                asked = policy.spread(left, cents)
        except NotCredited:
            assert not 0 < cents <= most
            continue
        assert sum(asked.values()) == cents or len(made) > 5
        before = NoteSums(
            sum(one.subtotal_cents for one in made), sum(one.credits_cents for one in made)
        )
        note = policy.correct(lines, noted, of, before, tax, asked)
        net = note.subtotal_cents - note.credits_cents
        assert abs(note.tax_cents * PERCENT - net * rate) <= PERCENT
        assert min(note.credits_cents, note.tax_cents, net) >= 0
        assert all(_is_within(line, lines[line["corrects_line"] - 1]) for line in note.lines)
        made.append(note)
        noted.append(note.lines)
        left = policy.left_of(lines, noted)
        assert all(_is_within(asdict(left[number]), lines[number - 1]) for number in left)
    if made:
        assert {(one.amount_cents, one.micro_cents, one.quantity) for one in left.values()} == {
            (0, 0, 0)
        }
    net = of.net_cents if made else 0
    assert sum(one.tax_cents for one in made) == tax.cents(net)
    assert sum(one.total_cents for one in made) == net + tax.cents(net)


def _is_within(part: Mapping[str, Any], line: Mapping[str, Any]) -> bool:
    """Between nothing and all of the line, which may be less than nothing."""
    names = ("amount_cents", "micro_cents")
    return all(min(0, line[name]) <= part[name] <= max(0, line[name]) for name in names)
