"""Collecting invoices with Stripe: what it is asked for, and what its events may do."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from contract_tests import invoicing as billing
from contract_tests import stripe_account, written
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from contract_tests.stripe_account import LoopbackStripe
from control.policy.months import Month
from menagerie import credit_grants, credit_notes, invoice_books
from storage.billing import invoices
from storage.billing.invoices import Invoice
from storage.billing.payments import InvoicePayment, PaymentNotice
from storage.errors import StateConflict

PATH = "/v1/payments/stripe"


@pytest.fixture
def stripe() -> Iterator[LoopbackStripe]:
    with stripe_account.stripe_account() as account:
        yield account


@pytest.fixture
def month(own_house: House, stripe: LoopbackStripe) -> Month:
    month = billing.starts_billing(own_house)
    settings = replace(own_house.services.settings, stripe=stripe.account)
    object.__setattr__(own_house.services, "settings", settings)
    return month


@pytest.fixture
def tenant(own_house: House) -> Tenant:
    return own_house.tenant("Difference Engines", plan="team")


@pytest.fixture
def invoice(own_house: House, month: Month, tenant: Tenant) -> Invoice:
    """Of 100.00, with 19.00 of tax."""
    billing.billed(own_house, month)
    return billing.invoice_of(own_house, tenant, month)


def signed(event: Any) -> dict[str, Any]:
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    signature = stripe_account.signature(body)
    headers = {"Content-Type": "application/json", "Stripe-Signature": signature}
    return {"content": body, "headers": headers}


def send(house: House, event: Any) -> httpx.Response:
    return house.post(PATH, **signed(event))


def heard(house: House, event: Any) -> str:
    answer = send(house, event)
    assert answer.status_code == 200, answer.text
    house.settle()
    return str(answer.json()["outcome"])


def now_of(house: House, of: Invoice) -> tuple[Invoice, InvoicePayment]:
    with house.database.read() as db:
        return invoices.find(db, of.id), db.get_one(InvoicePayment, of.id)


def kinds(house: House, tenant: Tenant) -> list[str]:
    with house.database.read() as db:
        return [one.type for one in written.events_of(db, tenant.org_id)]


def test_what_is_due_is_asked_for_once(
    own_house: House, tenant: Tenant, stripe: LoopbackStripe, invoice: Invoice
) -> None:
    house = own_house
    theirs = stripe.one
    assert (theirs["status"], theirs["total"]) == ("open", 11_900)
    assert theirs["metadata"] == {"invoice_id": invoice.id}
    form = theirs["asked_for"]
    assert (form["currency"], form["collection_method"]) == (
        invoice.currency.lower(),
        "send_invoice",
    )
    assert int(form["due_date"]) == int(invoice.due_at.timestamp())
    assert stripe.customers[form["customer"]] == {
        "name": "Difference Engines",
        "email": tenant.owner.email,
        "metadata[org_id]": tenant.org_id,
    }
    made = ["/v1/customers", "/v1/invoices", "/v1/invoiceitems", "/v1/invoices/in_000001/finalize"]
    assert stripe.posts() == made
    assert {one.key for one in stripe.asked if one.method == "POST"} == {
        f"{invoice.id}:{step}" for step in ("customer", "invoice", "item", "finalize")
    }
    path, session = f"{tenant.path}/invoices", house.session(tenant.owner.id)
    (shown,) = house.get(path, session).json()["items"]
    assert shown["payment_url"] == theirs["hosted_invoice_url"]
    invoice_books.run(house.services)
    house.settle()
    assert stripe.posts() == made


def test_answers_that_are_lost_make_nothing_twice(
    own_house: House, tenant: Tenant, month: Month, stripe: LoopbackStripe
) -> None:
    """As when a connection breaks after each of the things that were done."""
    stripe.broken = 3
    billing.billed(own_house, month)
    assert len(stripe.customers) == len(stripe.invoices) == 1
    assert (stripe.one["status"], stripe.one["total"]) == ("open", 11_900)
    assert stripe.broken == 0


def test_an_outage_is_waited_for_and_a_refusal_told(
    own_house: House, tenant: Tenant, month: Month, stripe: LoopbackStripe
) -> None:
    house = own_house
    stripe.down = True
    billing.month_ends(house, month)
    invoice_books.run(house.services)
    house.turns(12)
    assert stripe.invoices == {}
    stripe.down = False
    house.settle()
    assert stripe.one["status"] == "open"
    of = billing.invoice_of(house, tenant, month)
    stripe.one["status"] = "uncollectible"
    invoice_books.pay(house.services, of.id)
    house.settle()
    found, payment = now_of(house, of)
    assert (found.status, payment.ended) == ("paid", None)
    assert "The invoice is uncollectible" in str(payment.problem)
    (listed,) = invoice_books.listed(house.services, month.name)
    assert listed["payment_problem"] == payment.problem


def test_paid_there_is_paid_here_once(
    own_house: House, tenant: Tenant, stripe: LoopbackStripe, invoice: Invoice
) -> None:
    house = own_house
    event = stripe.event("invoice.paid")
    assert heard(house, event) == "taken"
    found, payment = now_of(house, invoice)
    assert (found.status, found.paid_cents, payment.ended) == ("paid", 11_900, "paid")
    asked = len(stripe.asked)
    assert heard(house, event) == "known"
    assert heard(house, {**event, "id": "evt_2"}) == "taken"
    assert kinds(house, tenant).count("invoice.paid.v1") == 1
    assert len(stripe.asked) == asked


def test_sent_ten_times_at_once_it_is_taken_once(
    own_house: House, tenant: Tenant, stripe: LoopbackStripe, invoice: Invoice
) -> None:
    event = stripe.event("invoice.paid")
    answers = own_house.together(*(("POST", PATH, None, signed(event)) for _ in range(10)))
    outcomes = [one.json()["outcome"] for one in answers if one.status_code == 200]
    assert outcomes.count("taken") == 1
    own_house.settle()
    assert now_of(own_house, invoice)[0].status == "paid"
    assert kinds(own_house, tenant).count("invoice.paid.v1") == 1


def test_what_could_not_be_charged_is_overdue(
    own_house: House, tenant: Tenant, stripe: LoopbackStripe, invoice: Invoice
) -> None:
    house = own_house
    assert heard(house, stripe.event("invoice.payment_failed")) == "taken"
    path, session = f"{tenant.path}/invoices", house.session(tenant.owner.id)
    assert house.get(path, session).json()["items"][0]["status"] == "overdue"
    assert kinds(house, tenant)[-1] == "invoice.payment_failed.v1"
    assert heard(house, stripe.event("invoice.paid", "evt_2")) == "taken"
    # Out of order: it tells of an attempt before that.
    assert heard(house, stripe.event("invoice.payment_failed", "evt_3")) == "taken"
    assert now_of(house, invoice)[0].status == "paid"
    assert kinds(house, tenant).count("invoice.payment_failed.v1") == 1


def test_void_there_is_credited_here(
    own_house: House, tenant: Tenant, stripe: LoopbackStripe, invoice: Invoice
) -> None:
    house = own_house
    stripe.one["status"] = "void"
    assert heard(house, stripe.event("invoice.voided")) == "taken"
    found, payment = now_of(house, invoice)
    assert (found.status, found.credited_cents, payment.ended) == ("void", 11_900, "void")
    assert kinds(house, tenant)[-2:] == ["credit_note.finalized.v1", "invoice.voided.v1"]
    assert heard(house, stripe.event("invoice.paid", "evt_2")) == "taken"
    assert now_of(house, invoice)[0].status == "void"
    assert stripe.posts()[-1].endswith("/finalize")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"amount_paid": 1}, "1 of a hundredth"),
        ({"amount_paid": 11_901}, "11901"),
        ({"currency": "jpy"}, "JPY"),
    ],
)
def test_another_amount_changes_nothing_and_is_told(
    own_house: House, stripe: LoopbackStripe, invoice: Invoice, changed: Any, told: str
) -> None:
    assert heard(own_house, stripe.event("invoice.paid", **changed)) == "taken"
    found, payment = now_of(own_house, invoice)
    assert (found.status, payment.ended) == ("open", None)
    assert told in str(payment.problem)


IGNORED: list[tuple[str, dict[str, Any]]] = [
    ("invoice.created", {}),
    ("customer.deleted", {}),
    ("invoice.paid", {"metadata": {}}),
    ("invoice.paid", {"metadata": None}),
    ("invoice.paid", {"metadata": {"invoice_id": "1' OR 1=1"}}),
    ("invoice.paid", {"amount_paid": "11900"}),
    ("invoice.paid", {"amount_paid": -1}),
    ("invoice.paid", {"amount_paid": True}),
    ("invoice.paid", {"currency": "euro"}),
    ("invoice.paid", {"id": ["in_1"]}),
]


def test_what_is_about_no_invoice_of_ours_is_ignored(
    own_house: House, stripe: LoopbackStripe, invoice: Invoice
) -> None:
    for number, (kind, changed) in enumerate(IGNORED):
        assert heard(own_house, stripe.event(kind, f"evt_{number}", **changed)) == "ignored"
    other = {"metadata": {"invoice_id": invoices.new_id()}}
    assert heard(own_house, stripe.event("invoice.paid", "evt_a", **other)) == "taken"
    assert heard(own_house, stripe.event("invoice.paid", "evt_b", id="in_other")) == "taken"
    assert now_of(own_house, invoice)[0].status == "open"
    with own_house.database.read() as db:
        assert db.scalar(select(func.count()).select_from(PaymentNotice)) == 2


def test_what_is_not_signed_does_nothing(
    own_house: House, stripe: LoopbackStripe, invoice: Invoice
) -> None:
    house = own_house
    event = stripe.event("invoice.paid")
    body = json.dumps(event).encode()
    good = stripe_account.signature(body)
    for header in (
        *(None, "", "x", "t=1", "v1=", f"v1={good.rpartition('=')[2]}", "t=x,v1=00", "t=,v1="),
        good.replace("v1=", "v0="),
        good[:-1] + ("0" if good[-1] != "0" else "1"),
        stripe_account.signature(body, secret="whsec_other"),
        stripe_account.signature(body, at=time.time() - 301),
        stripe_account.signature(body + b" "),
        f"{good[:-1]}~",
    ):
        headers = {"Content-Type": "application/json"}
        headers |= {} if header is None else {"Stripe-Signature": header}
        answer = house.post(PATH, content=body, headers=headers)
        is_problem(answer, 401, "signature_refused")
    house.settle()
    assert now_of(house, invoice)[0].status == "open"
    huge = json.dumps({**event, "more": "x" * 140_000}).encode()
    is_problem(send(house, huge), 413)
    off = replace(house.services.settings, stripe=None)
    object.__setattr__(house.services, "settings", off)
    is_problem(send(house, event), 401, "signature_refused")


def test_less_is_asked_for_after_a_credit_note_and_nothing_if_void(
    own_house: House, stripe: LoopbackStripe, invoice: Invoice
) -> None:
    house = own_house
    credit_notes.credit(house.services, invoice.id, [], "10", "so")
    house.settle()
    assert stripe.one["amount_due"] == 11_900 - 1_190
    assert now_of(house, invoice)[1].asked_cents == 10_710
    credit_notes.credit(house.services, invoice.id, [], None, "so")
    house.settle()
    assert stripe.one["status"] == "void"
    # Which Stripe tells of.
    assert heard(house, stripe.event("invoice.voided")) == "taken"
    found, payment = now_of(house, invoice)
    assert (found.status, payment.ended, payment.problem) == ("void", "void", None)


def test_what_was_paid_there_is_paid_back_there(
    own_house: House, tenant: Tenant, stripe: LoopbackStripe, invoice: Invoice
) -> None:
    house = own_house
    credit_notes.credit(house.services, invoice.id, [], "20", "before")
    house.settle()
    assert heard(house, stripe.event("invoice.paid")) == "taken"
    assert now_of(house, invoice)[0].paid_cents == 9_520
    credit_notes.credit(house.services, invoice.id, [], "10", "after")
    house.settle()
    assert stripe.credit_notes[-1]["refund_amount"] == "1190"
    with house.database.read() as db:
        notes = invoices.notes_of(db, invoice)
    assert [(one.status, one.paid_cents) for one in notes] == [("paid", 0), ("paid", 1_190)]
    assert kinds(house, tenant)[-1] == "credit_note.refunded.v1"


def test_what_credits_have_paid_is_not_charged(
    own_house: House, tenant: Tenant, month: Month, stripe: LoopbackStripe
) -> None:
    """All that was to be paid is credited: nothing is owed, and nobody has paid elsewhere."""
    house = own_house
    credit_grants.grant(house.services, tenant.org_id, "5", reason="so", months=1, reference=None)
    billing.billed(house, month)
    of = billing.invoice_of(house, tenant, month)
    credit_notes.credit(house.services, of.id, [], "95", "so")
    house.settle()
    found, payment = now_of(house, of)
    assert (found.status, found.paid_cents) == ("paid", 0)
    assert (stripe.one["status"], payment.ended) == ("void", "void")


def test_what_was_paid_elsewhere_is_not_charged(
    own_house: House, stripe: LoopbackStripe, invoice: Invoice
) -> None:
    house = own_house
    invoice_books.pay(house.services, invoice.id)
    house.settle()
    assert stripe.one["status"] == "paid"
    assert heard(house, stripe.event("invoice.paid")) == "taken"
    found, payment = now_of(house, invoice)
    assert (found.status, payment.ended, payment.problem) == ("paid", "elsewhere", None)


def test_nothing_is_charged_without_an_account(
    own_house: House, tenant: Tenant, stripe: LoopbackStripe
) -> None:
    """Nor later, for an invoice that was made without one."""
    house = own_house
    month = billing.starts_billing(house)
    billing.billed(house, month)
    of = billing.invoice_of(house, tenant, month)
    with_account = replace(house.services.settings, stripe=stripe.account)
    object.__setattr__(house.services, "settings", with_account)
    invoice_books.run(house.services)
    credit_notes.credit(house.services, of.id, [], "10", "so")
    house.settle()
    assert stripe.asked == []
    # But when the operator asks for it; once.
    for _ in range(2):
        assert "107.10" in invoice_books.collect(house.services, of.number)
        house.settle()
    assert (stripe.one["total"], len(stripe.invoices)) == (10_710, 1)
    invoice_books.pay(house.services, of.number)
    with pytest.raises(StateConflict, match="nothing is to be paid"):
        invoice_books.collect(house.services, of.number)
    object.__setattr__(house.services, "settings", replace(with_account, stripe=None))
    with pytest.raises(StateConflict, match="stripe_api_key_file"):
        invoice_books.collect(house.services, of.number)


def test_what_is_given_up_goes_on_where_it_ended(
    own_house: House, tenant: Tenant, month: Month, stripe: LoopbackStripe
) -> None:
    """Though Stripe has forgotten the keys by then: no second customer, invoice or item."""
    house = own_house
    stripe.down_after = "/v1/invoices"
    billing.month_ends(house, month)
    invoice_books.run(house.services)
    house.turns(12)
    assert (stripe.one["status"], stripe.down) == ("draft", True)
    house.pass_time(21 * 3600)
    house.settle()
    of = billing.invoice_of(house, tenant, month)
    assert now_of(house, of)[1].problem is not None
    stripe.down, stripe.down_after = False, ""
    stripe.forget()
    invoice_books.collect(house.services, of.number)
    house.settle()
    assert len(stripe.customers) == len(stripe.invoices) == 1
    assert (stripe.one["status"], stripe.one["total"]) == ("open", 11_900)
    assert now_of(house, of)[1].problem is None
