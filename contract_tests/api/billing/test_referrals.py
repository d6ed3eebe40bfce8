"""Referrals: a code for others, and a credit for both sides once something was paid."""

from typing import Any

import httpx
import pytest

from contract_tests import written
from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.rows import is_problem
from control.billing import referring
from storage.access import enterprises, memberships


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


def code_of(house: House, tenant: Tenant) -> str:
    made = house.post(f"{tenant.path}/referrals", tenant.key)
    assert made.status_code == 201, made.text
    return str(made.json()["referral_code"])


def create(house: House, person: Person, code: str) -> httpx.Response:
    body = {"name": "Referred", "referral_code": code}
    return house.post("/v1/orgs", person.session, json=body)


def referred(house: House, tenant: Tenant, person: Person | None = None) -> Tenant:
    """An organization that was created with the tenant's code."""
    owner = person or house.person()
    made = create(house, owner, code_of(house, tenant))
    assert made.status_code == 201, made.text
    org_id = made.json()["id"]
    key, key_id = house.key(org_id, owner, "owner")
    return Tenant(org_id, owner, key, key_id, "")


def paid(house: House, tenant: Tenant, cents: int) -> None:
    with house.database.write() as db:
        referring.invoice_paid(db, tenant.org_id, cents, "USD")


def listed(house: House, tenant: Tenant) -> dict[str, Any]:
    found: dict[str, Any] = house.get(f"{tenant.path}/referrals", tenant.key).json()
    return found


def balance(house: House, tenant: Tenant) -> int:
    return int(house.get(f"{tenant.path}/credits", tenant.key).json()["balance_cents"])


def test_a_code_is_made_once(house: House, tenant: Tenant) -> None:
    assert listed(house, tenant)["referral_code"] is None
    code = code_of(house, tenant)
    assert code_of(house, tenant) == code == listed(house, tenant)["referral_code"]
    assert code_of(house, house.tenant()) != code


@pytest.mark.every_database  # what locks is the database
def test_twenty_requests_at_once_make_one_code(house: House, tenant: Tenant) -> None:
    answers = house.together(*[("POST", f"{tenant.path}/referrals", tenant.key, {})] * 20)
    assert {each.status_code for each in answers} == {201}
    assert len({each.json()["referral_code"] for each in answers}) == 1


def test_both_are_credited_once_the_first_invoice_is_paid(house: House, tenant: Tenant) -> None:
    other = referred(house, tenant)
    paid(house, other, 0)
    found = listed(house, tenant)
    assert [one["status"] for one in found["items"]] == ["pending"]
    assert other.org_id not in str(found)
    for cents in (9_000, 9_000):
        paid(house, other, cents)
    found = listed(house, tenant)
    assert [one["status"] for one in found["items"]] == ["credited"]
    assert (found["credited_cents"], found["reward_cents"]) == (2_500, 2_500)
    assert (balance(house, tenant), balance(house, other)) == (2_500, 2_500)
    assert listed(house, other)["credited_cents"] == 2_500
    for one in (tenant, other):
        with house.database.read() as db:
            told = written.events_of(db, one.org_id)[-1]
        assert (told.type, told.data["kind"]) == ("credit.granted.v1", "referral")


def test_nobody_is_credited_more_than_was_paid(house: House, tenant: Tenant) -> None:
    other = referred(house, tenant)
    paid(house, other, 1)
    assert (balance(house, tenant), balance(house, other)) == (1, 1)


@pytest.mark.parametrize("role", ["owner", "member"])
def test_nobody_refers_an_organization_of_their_own(
    house: House, tenant: Tenant, role: str
) -> None:
    person = tenant.owner if role == "owner" else house.member(tenant.org_id, role)
    answer = create(house, person, code_of(house, tenant))
    is_problem(answer, 422)
    assert answer.json()["errors"][0]["keyword"] == "self_referral"


def test_who_owns_both_by_then_is_credited_nothing(house: House, tenant: Tenant) -> None:
    other = referred(house, tenant)
    with house.database.write() as db:
        memberships.create(db, other.org_id, tenant.owner.id, "owner")
    paid(house, other, 5_000)
    paid(house, other, 5_000)
    assert [one["status"] for one in listed(house, tenant)["items"]] == ["refused"]
    assert (balance(house, tenant), balance(house, other)) == (0, 0)


@pytest.mark.parametrize("parent", ["referring", "referred", "third"])
def test_one_enterprise_is_credited_nothing(house: House, tenant: Tenant, parent: str) -> None:
    other, third = referred(house, tenant), house.tenant()
    members = {"referring": tenant, "referred": other, "third": third}
    with house.database.write() as db:
        head = members.pop(parent)
        enterprises.found(db, head.org_id, {})
        for each in members.values():
            if each is not third:
                enterprises.attach(db, head.org_id, each.org_id, head.owner.id)
    paid(house, other, 5_000)
    assert [one["status"] for one in listed(house, tenant)["items"]] == ["refused"]
    assert (balance(house, tenant), balance(house, other)) == (0, 0)


def test_a_code_that_nobody_has_makes_no_organization(house: House, tenant: Tenant) -> None:
    person = house.person()
    code = code_of(house, tenant)
    closed = house.tenant()
    of_closed = code_of(house, closed)
    house.change_org(closed.org_id, status="closed")
    for wrong in ("0123456789", of_closed):
        answer = create(house, person, wrong)
        is_problem(answer, 422)
        assert answer.json()["errors"][0]["pointer"] == "/referral_code"
    for wrong in ("", code.lower(), f"{code} ", "I" * 10):
        is_problem(create(house, person, wrong), 422)
    assert house.get("/v1/orgs", person.session).json() == []


def test_what_was_not_referred_pays_as_ever(house: House, tenant: Tenant) -> None:
    paid(house, tenant, 5_000)
    assert balance(house, tenant) == 0


def test_roles_and_strangers(house: House, tenant: Tenant) -> None:
    path = f"{tenant.path}/referrals"
    auditor = house.member(tenant.org_id, "auditor").session
    assert house.get(path, auditor).status_code == 200
    is_problem(house.post(path, auditor), 403, "permission_missing")
    is_problem(house.get(path, house.member(tenant.org_id, "member").session), 403)
    stranger = house.tenant()
    is_problem(house.get(path, stranger.key), 404, "not_found")
    is_problem(house.post(path, stranger.key), 404, "not_found")
