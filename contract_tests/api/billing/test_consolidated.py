"""One invoice for an enterprise: what the parent pays for, and what is left to each subsidiary."""

from datetime import timedelta
from typing import Any

import pytest

from contract_tests import invoicing as billing
from contract_tests.api.billing import billed
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from control.billing import charges
from control.policy.months import HOUR, Month, month_of
from control.policy.sizes import GB
from menagerie import credit_grants, credit_notes, invoice_books, meter_corrections
from storage.billing.invoices import Invoice
from storage.billing.whose import Whose


@pytest.fixture
def parent(own_house: House, month: Month) -> Tenant:
    owner = own_house.person("Owner", mfa=True)
    parent = own_house.tenant("Parent", plan="enterprise", owner=owner)
    body = {"billing_email": "invoices@example.com", "consolidated_invoice": True}
    made = own_house.post(f"{parent.path}/enterprise", fresh(own_house, parent), json=body)
    assert (made.status_code, made.json()["consolidated_invoice"]) == (201, True)
    return parent


def fresh(house: House, tenant: Tenant) -> str:
    """A session, as those from before the month have expired."""
    return house.session(tenant.owner.id, mfa=True)


def subsidiary(house: House, parent: Tenant, name: str) -> Tenant:
    """With an instance that ran in all of the months that matter here, and egress on two days."""
    made = house.tenant(name, plan="team", owner=parent.owner)
    size = billed.instance(house, made, "s1", 30 * 10**9)
    since = house.now() - timedelta(days=40)
    until = house.now() + timedelta(days=80)
    billed.span(house, made, size, since, until, size="s1")
    return made


def attach(house: House, parent: Tenant, org: Tenant) -> None:
    path, body = f"{parent.path}/enterprise/subsidiaries", {"org_id": org.org_id}
    assert house.post(path, fresh(house, parent), json=body).status_code == 201


def detach(house: House, parent: Tenant, org: Tenant) -> None:
    path = f"{parent.path}/enterprise/subsidiaries/{org.org_id}"
    assert house.request("DELETE", path, fresh(house, parent)).status_code == 204


def choose(house: House, parent: Tenant, consolidated: bool) -> Any:
    path, body = f"{parent.path}/enterprise", {"consolidated_invoice": consolidated}
    answer = house.request("PATCH", path, fresh(house, parent), json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def goes_to(house: House, moment: Any) -> None:
    house.pass_time((moment - house.now()).total_seconds())


def used(house: House, tenant: Tenant, month: Month) -> int:
    """In micro-cents, as the cost report has it."""
    with house.database.read() as db:
        whose = Whose(org_id=tenant.org_id)
        prices = house.services.settings.prices
        return charges.tally(db, prices, whose, month, month.end).micro_cents


def of_org(invoice: Invoice | None, org_id: str | None = None) -> int:
    """The micro-cents of an invoice, or those of one organization."""
    lines = [] if invoice is None else invoice.lines
    return sum(one["micro_cents"] for one in lines if org_id is None or one["org_id"] == org_id)


def found(house: House, tenant: Tenant, month: Month) -> Invoice | None:
    with house.database.read() as db:
        return billing.find(db, tenant.org_id, month)


def listed(house: House, tenant: Tenant) -> Any:
    return house.get(f"{tenant.path}/invoices", fresh(house, tenant)).json()


def test_the_parent_gets_one_invoice_with_lines_for_each(
    own_house: House, month: Month, parent: Tenant
) -> None:
    house = own_house
    looms, mills = (subsidiary(house, parent, name) for name in ("Looms", "Mills"))
    for each in (looms, mills):
        attach(house, parent, each)
    shown = house.get(f"{looms.path}/enterprise", fresh(house, looms)).json()
    assert (shown["role"], shown["consolidated_invoice"]) == ("subsidiary", True)
    assert listed(house, looms) == {"billed_by": "Parent", "items": [], "next_cursor": None}
    billing.billed(house, month)
    (one,) = listed(house, parent)["items"]
    assert listed(house, parent)["billed_by"] is None
    assert listed(house, looms)["items"] == listed(house, mills)["items"] == []
    orgs = [line["org_id"] for line in one["lines"]]
    assert orgs[0] == parent.org_id
    assert set(orgs) == {parent.org_id, looms.org_id, mills.org_id}
    for name, of in (("Parent", parent), ("Looms", looms), ("Mills", mills)):
        lines = [line for line in one["lines"] if line["org_id"] == of.org_id]
        assert all(line["description"].startswith(f"{name}: ") for line in lines)
        assert sum(line["micro_cents"] for line in lines) == used(house, of, month) > 0
    assert one["subtotal_cents"] == sum(line["amount_cents"] for line in one["lines"])
    house.settle()
    assert house.letters.last.to == "invoices@example.com"


def test_a_late_correction_is_for_whoever_pays_when_it_counts(
    own_house: House, month: Month, parent: Tenant
) -> None:
    """Also of a month that the subsidiary paid for itself."""
    house, hour = own_house, month.begin + 5 * HOUR
    looms = subsidiary(house, parent, "Looms")
    made = billed.instance(house, looms, "s1", 10 * GB)
    billing.month_ends(house, month)
    billed.metered(house, looms, made, "egress", hour, 700 * GB)
    billing.billed(house, month)
    assert billing.invoice_of(house, looms, month).lines
    attach(house, parent, looms)
    told = f"{hour:%Y-%m-%dT%H:00Z}"
    meter_corrections.correct(house.services, made, "egress", told, str(100 * GB), reason="a test")
    following = month_of(month.end)
    billing.billed(house, following)
    one = billing.invoice_of(house, parent, following)
    (corrected,) = [line for line in one.lines if "Correction" in line["description"]]
    assert corrected["org_id"] == looms.org_id
    assert corrected["description"] == f"Looms: Correction of {month.name}, egress: -600.00 GB"
    assert corrected["amount_cents"] == -600
    own = found(house, looms, following)
    assert of_org(one, looms.org_id) + of_org(own) == used(house, looms, following)


def test_a_month_is_split_at_the_full_hour(own_house: House, month: Month, parent: Tenant) -> None:
    """Attached, detached and attached again, and chosen no more; nothing is lost nor twice."""
    house = own_house
    looms, mills = (subsidiary(house, parent, name) for name in ("Looms", "Mills"))
    goes_to(house, month.begin + 100 * HOUR + timedelta(minutes=40))
    attach(house, parent, looms)
    goes_to(house, month.begin + 200 * HOUR + timedelta(minutes=20))
    detach(house, parent, looms)
    attach(house, parent, looms)  # in the same hour
    detach(house, parent, looms)
    goes_to(house, month.begin + 300 * HOUR + timedelta(minutes=1))
    attach(house, parent, looms)
    attach(house, parent, mills)
    goes_to(house, month.begin + 400 * HOUR + timedelta(minutes=59))
    assert choose(house, parent, False)["consolidated_invoice"] is False
    assert choose(house, parent, False)["consolidated_invoice"] is False
    assert listed(house, looms)["billed_by"] is None
    billing.billed(house, month)
    whole = found(house, parent, month)
    assert whole is not None
    for of, hours in ((looms, 200), (mills, 100)):
        own = found(house, of, month)
        part = of_org(whole, of.org_id)
        assert part + of_org(own) == used(house, of, month)
        line = next(one for one in whole.lines if one["org_id"] == of.org_id)
        assert (line["metric"], line["quantity"]) == ("plan", hours * 3600)
    assert of_org(whole, parent.org_id) == used(house, parent, month)


def test_each_uses_its_own_credits_first(own_house: House, month: Month, parent: Tenant) -> None:
    house = own_house
    looms = subsidiary(house, parent, "Looms")
    attach(house, parent, looms)
    for of, amount in ((looms, "30"), (parent, "50")):
        credit_grants.grant(
            house.services, of.org_id, amount, reason="so", months=2, reference=None
        )
    billing.billed(house, month)
    made = billing.invoice_of(house, parent, month)
    assert [one["amount_cents"] for one in made.credits] == [3_000, 5_000]
    assert made.credits_cents == 8_000

    def left(of: Tenant) -> int:
        path = f"{of.path}/credits"
        return int(house.get(path, fresh(house, of)).json()["balance_cents"])

    assert (left(looms), left(parent)) == (0, 0)
    credit_notes.credit(house.services, made.id, [], None, "so")
    assert (left(looms), left(parent)) == (3_000, 5_000)


def test_credits_of_a_subsidiary_pay_for_nobody_else(
    own_house: House, month: Month, parent: Tenant
) -> None:
    house = own_house
    looms = subsidiary(house, parent, "Looms")
    attach(house, parent, looms)
    credit_grants.grant(
        house.services, looms.org_id, "90000", reason="so", months=2, reference=None
    )
    billing.billed(house, month)
    made = billing.invoice_of(house, parent, month)
    of_looms = sum(one["amount_cents"] for one in made.lines if one["org_id"] == looms.org_id)
    assert 0 < made.credits_cents == of_looms < made.subtotal_cents


def test_by_default_each_gets_its_own(own_house: House, month: Month, parent: Tenant) -> None:
    house = own_house
    choose(house, parent, False)
    looms = subsidiary(house, parent, "Looms")
    attach(house, parent, looms)
    billing.billed(house, month)
    assert of_org(found(house, looms, month)) == used(house, looms, month)
    own = found(house, parent, month)
    assert of_org(own) == used(house, parent, month)
    assert own is not None
    assert {one["org_id"] for one in own.lines} == {None}


def test_invoiced_again_it_is_split_as_before(
    own_house: House, month: Month, parent: Tenant
) -> None:
    """Though a subsidiary has left meanwhile: what was is not changed by what is."""
    house = own_house
    looms = subsidiary(house, parent, "Looms")
    attach(house, parent, looms)
    billing.billed(house, month)
    made = billing.invoice_of(house, parent, month)
    detach(house, parent, looms)
    credit_notes.void(house.services, made.id, "so")
    again = listed(house, parent)["items"][0]
    amounts = [one["micro_cents"] for one in made.lines]
    assert [one["micro_cents"] for one in again["lines"]] == amounts
    told = credit_notes.credit(house.services, again["number"], ["1"], None, "so")
    assert told.startswith("CN")
    assert "to be paid" in told
    invoice_books.run(house.services)
    assert found(house, looms, month) is None


def test_only_owners_of_a_parent_choose(own_house: House, parent: Tenant) -> None:
    house = own_house
    looms = subsidiary(house, parent, "Looms")
    body = {"consolidated_invoice": True}
    path = f"{looms.path}/enterprise"
    is_problem(house.request("PATCH", path, fresh(house, looms), json=body), 409)
    attach(house, parent, looms)
    is_problem(house.request("PATCH", path, fresh(house, looms), json=body), 409)
    for wrong in (None, "yes", 1):
        chosen = {"consolidated_invoice": wrong}
        path = f"{parent.path}/enterprise"
        is_problem(house.request("PATCH", path, fresh(house, parent), json=chosen), 422)
