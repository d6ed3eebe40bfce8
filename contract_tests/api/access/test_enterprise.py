"""Enterprises: who is whose subsidiary, and what each side sees of the other."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from contract_tests import written
from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.rows import is_problem
from control.policy.plans import ENTERPRISE
from storage.access import enterprises, memberships
from storage.access.enterprises import EnterpriseOrg

TERMS = {
    "contract_reference": "MSA-2026-17",
    "billing_email": "invoices@example.com",
    "commitment_usd_cents_month": 500_000,
    "starts_on": "2026-12-01",
    "ends_on": "2027-11-30",
}
NO_TERMS = dict.fromkeys(TERMS)


@pytest.fixture
def owner(house: House) -> Person:
    return house.person("Owner", mfa=True)


@pytest.fixture
def parent(house: House, owner: Person) -> Tenant:
    tenant = house.tenant("Parent", plan="enterprise", owner=owner)
    assert make(house, tenant).status_code == 201
    return tenant


@pytest.fixture
def other(house: House, owner: Person) -> Tenant:
    """Which the owner of the parent owns too."""
    return house.tenant("Other", owner=owner)


def make(house: House, tenant: Tenant, **terms: Any) -> httpx.Response:
    return house.post(f"{tenant.path}/enterprise", tenant.owner.session, json=terms)


def change(house: House, tenant: Tenant, **terms: Any) -> httpx.Response:
    path = f"{tenant.path}/enterprise"
    return house.request("PATCH", path, tenant.owner.session, json=terms)


def attach(house: House, parent: Tenant, org_id: str, token: str | None = None) -> httpx.Response:
    path = f"{parent.path}/enterprise/subsidiaries"
    return house.post(path, token or parent.owner.session, json={"org_id": org_id})


def detach(house: House, of: Tenant, org_id: str, token: str | None = None) -> httpx.Response:
    path = f"{of.path}/enterprise/subsidiaries/{org_id}"
    return house.request("DELETE", path, token or of.owner.session)


def shown(house: House, tenant: Tenant, token: str | None = None) -> Any:
    answer = house.get(f"{tenant.path}/enterprise", token or tenant.key)
    assert answer.status_code == 200, answer.text
    return answer.json()


def listed(house: House, tenant: Tenant, **options: Any) -> Any:
    path = f"{tenant.path}/enterprise/subsidiaries"
    return house.get(path, tenant.key, params=options).json()


def last_audit(house: House, tenant: Tenant) -> Any:
    with house.database.read() as db:
        return written.audited(db, tenant.org_id)[0]


def test_an_owner_makes_an_organization_a_parent_with_terms(house: House, owner: Person) -> None:
    tenant = house.tenant(plan="enterprise", owner=owner)
    assert shown(house, tenant)["role"] == "none"
    answer = make(house, tenant, **TERMS)
    assert answer.status_code == 201
    assert answer.headers["location"] == f"{tenant.path}/enterprise"
    assert answer.json() == shown(house, tenant)
    assert (answer.json()["role"], answer.json()["terms"]) == ("parent", TERMS)
    is_problem(make(house, tenant), 409, "enterprise_parent")
    changed = change(house, tenant, ends_on=None, contract_reference="MSA-2")
    assert changed.json()["terms"] == {**TERMS, "ends_on": None, "contract_reference": "MSA-2"}
    entry = last_audit(house, tenant)
    assert entry.action == "enterprise.update"
    assert entry.detail == {
        "terms": ["contract_reference", "ends_on"],
        "changes": {"ends_on": {"from": TERMS["ends_on"], "to": None}},
    }


@pytest.mark.parametrize(
    ("terms", "pointer"),
    [
        ({"starts_on": "2026-02-31"}, "/starts_on"),
        ({"starts_on": "2026-13-01"}, "/starts_on"),
        ({"ends_on": "tomorrow"}, "/ends_on"),
        ({"ends_on": "2026-12-01\n"}, "/ends_on"),
        ({"starts_on": "2026-12-01", "ends_on": "2026-11-30"}, "/ends_on"),
        ({"commitment_usd_cents_month": -1}, "/commitment_usd_cents_month"),
        ({"commitment_usd_cents_month": 10**18}, "/commitment_usd_cents_month"),
        ({"contract_reference": "a" * 101}, "/contract_reference"),
        ({"contract_reference": "a\x00b"}, "/contract_reference"),
        ({"billing_email": "x@y\r\nBcc: z@example.com"}, "/billing_email"),
        ({"parent_id": "org_01JD7QK3V8Y2M4N6P8R0S2T4V6"}, "/parent_id"),
    ],
)
def test_terms_that_cannot_be(
    house: House, owner: Person, terms: dict[str, Any], pointer: str
) -> None:
    tenant = house.tenant(plan="enterprise", owner=owner)
    answer = make(house, tenant, **terms)
    is_problem(answer, 422)
    assert answer.json()["errors"][0]["pointer"] in {pointer, ""}
    assert shown(house, tenant)["role"] == "none"


def test_a_change_is_held_to_the_terms_that_stay(house: House, parent: Tenant) -> None:
    assert change(house, parent, starts_on="2027-01-01").is_success
    is_problem(change(house, parent, ends_on="2026-12-31"), 422)
    is_problem(change(house, parent), 422)
    assert shown(house, parent)["terms"] == {**NO_TERMS, "starts_on": "2027-01-01"}


def test_only_the_enterprise_plan_has_enterprises(house: House, owner: Person) -> None:
    tenant = house.tenant(plan="team", owner=owner)
    answer = make(house, tenant)
    is_problem(answer, 422)
    assert answer.json()["errors"][0]["keyword"] == "plan"
    is_problem(change(house, tenant, starts_on=None), 409, "enterprise_missing")


def test_a_parent_sees_names_and_sums_of_what_is_attached(
    house: House, parent: Tenant, other: Tenant
) -> None:
    house.instance(other, size="s1", storage_bytes=12 * 10**9, running=False)
    house.instance(other, size="s1", storage_bytes=12 * 10**9, running=False)
    gone = house.instance(other, running=False)
    assert house.request("DELETE", f"{other.path}/instances/{gone}", other.key).is_success
    own = house.instance(parent, size="s1", running=False)
    attached = attach(house, parent, other.org_id)
    assert attached.status_code == 201, attached.text
    usage = {"instances": 2, "storage_bytes": 24 * 10**9, "cost_usd_cents_month": 2 * 1_524}
    named = {"org_id": other.org_id, "name": "Other", "status": "open", "usage": usage}
    assert attached.json() == {**named, "attached_at": attached.json()["attached_at"]}
    assert listed(house, parent)["items"] == [attached.json()]
    found = shown(house, parent)["usage"]
    assert (found["subsidiaries"], found["subsidiaries_max"]) == (1, 100)
    assert found["own"]["instances"] == 1
    assert found["total"]["instances"] == 3
    extra = found["total"]["cost_usd_cents_month"] - found["own"]["cost_usd_cents_month"]
    assert extra == 2 * 1_524
    # Nothing in the subsidiary itself: the parent's key opens no door there.
    assert house.get(f"{other.path}/instances", parent.key).status_code == 404
    assert house.get(f"{parent.path}/instances/{own}", other.key).status_code == 404


def test_a_subsidiary_sees_its_parents_name_alone(
    house: House, parent: Tenant, other: Tenant
) -> None:
    assert change(house, parent, **TERMS).is_success
    assert attach(house, parent, other.org_id).is_success
    auditor = house.member(other.org_id, "auditor")
    found = shown(house, other, auditor.session)
    assert found == {
        "org_id": other.org_id,
        "role": "subsidiary",
        "parent": {"name": "Parent"},
        "consolidated_invoice": False,
        "terms": None,
        "usage": None,
    }
    assert listed(house, other)["items"] == []
    member = house.member(other.org_id, "member")
    answer = house.get(f"{other.path}/enterprise", member.session)
    is_problem(answer, 403, "permission_missing")


def test_both_organizations_have_it_in_their_logs(
    house: House, parent: Tenant, other: Tenant
) -> None:
    assert attach(house, parent, other.org_id).is_success
    for tenant, ip in ((parent, "203.0.113.7"), (other, None)):
        entry = last_audit(house, tenant)
        assert (entry.action, entry.target) == ("enterprise.subsidiary.attach", other.org_id)
        assert (entry.actor_kind, entry.actor_id) == ("user", parent.owner.id)
        assert entry.ip == ip
    colleague = house.member(parent.org_id, "owner", mfa=True)
    assert detach(house, parent, other.org_id, colleague.session).status_code == 204
    assert last_audit(house, parent).actor_id == colleague.id
    entry = last_audit(house, other)
    # Who it was is nobody whom the subsidiary knows.
    assert (entry.action, entry.actor_kind) == ("enterprise.subsidiary.detach", "system")
    assert (entry.actor_id, entry.ip) == (None, None)


def test_either_side_detaches(house: House, parent: Tenant, other: Tenant) -> None:
    for side in (parent, other):
        assert attach(house, parent, other.org_id).is_success
        assert detach(house, side, other.org_id).status_code == 204
        assert shown(house, other)["role"] == "none"
        assert listed(house, parent)["items"] == []
        is_problem(detach(house, side, other.org_id), 404, "not_found")


def test_an_owner_of_the_subsidiary_leaves_who_has_no_part_in_the_parent(
    house: House, parent: Tenant, other: Tenant
) -> None:
    assert attach(house, parent, other.org_id).is_success
    colleague = house.member(other.org_id, "owner", mfa=True)
    is_problem(detach(house, parent, other.org_id, colleague.session), 404)
    assert detach(house, other, other.org_id, colleague.session).status_code == 204
    assert last_audit(house, parent).actor_kind == "system"


def test_an_organization_has_one_parent_and_a_parent_none(
    house: House, owner: Person, parent: Tenant, other: Tenant
) -> None:
    second = house.tenant("Second", plan="enterprise", owner=owner)
    assert make(house, second).is_success
    assert attach(house, parent, other.org_id).is_success
    is_problem(attach(house, parent, other.org_id), 409, "enterprise_subsidiary")
    is_problem(attach(house, second, other.org_id), 409, "enterprise_subsidiary")
    is_problem(attach(house, parent, second.org_id), 409, "enterprise_parent")
    is_problem(attach(house, parent, parent.org_id), 409, "enterprise_parent")
    house.change_org(other.org_id, plan="enterprise")
    third = house.tenant("Third", owner=owner)
    is_problem(make(house, other), 409, "enterprise_subsidiary")
    is_problem(attach(house, other, third.org_id), 409, "enterprise_missing")
    is_problem(detach(house, second, other.org_id), 404, "not_found")
    is_problem(detach(house, second, second.org_id), 404, "not_found")


def test_only_who_owns_both_attaches(house: House, parent: Tenant, other: Tenant) -> None:
    stranger = house.tenant("Stranger")
    never = f"org_{'0' * 26}"
    absent, theirs = (attach(house, parent, org_id) for org_id in (never, stranger.org_id))
    is_problem(absent, 404, "not_found")
    is_problem(theirs, 404, "not_found")
    assert absent.json()["detail"] == theirs.json()["detail"]
    # Nor does the answer tell of a stranger's that it is in an enterprise.
    with house.database.write() as db:
        enterprises.found(db, stranger.org_id, {})
    is_problem(attach(house, parent, stranger.org_id), 404, "not_found")
    for role in ("admin", "auditor", "member"):
        both = house.member(parent.org_id, "owner", mfa=True)
        with house.database.write() as db:
            memberships.create(db, other.org_id, both.id, role)
        is_problem(attach(house, parent, other.org_id, both.session), 403, "owner_required")
    is_problem(attach(house, parent, other.org_id, parent.key), 403, "session_required")
    weak = house.session(parent.owner.id)
    is_problem(attach(house, parent, other.org_id, weak), 403, "mfa_required")
    admin = house.member(parent.org_id, "admin", mfa=True)
    is_problem(attach(house, parent, other.org_id, admin.session), 403, "owner_required")
    assert listed(house, parent)["items"] == []


def test_a_closed_organization_is_not_attached(house: House, parent: Tenant, other: Tenant) -> None:
    house.change_org(other.org_id, status="closed")
    is_problem(attach(house, parent, other.org_id), 409, "org_closed")
    house.change_org(other.org_id, status="open")
    house.change_org(parent.org_id, status="closed")
    is_problem(attach(house, parent, other.org_id), 409, "org_closed")


def test_a_subsidiary_leaves_a_parent_that_was_closed(
    house: House, parent: Tenant, other: Tenant
) -> None:
    assert attach(house, parent, other.org_id).is_success
    house.change_org(parent.org_id, status="closed")
    is_problem(detach(house, parent, other.org_id), 409, "org_closed")
    assert detach(house, other, other.org_id).status_code == 204


def test_the_plan_bounds_how_many_are_attached(house: House, parent: Tenant, other: Tenant) -> None:
    others = [house.tenant() for _ in range(3)]
    with house.database.write() as db:
        for one in others:
            enterprises.attach(db, parent.org_id, one.org_id, parent.owner.id)
    fewer = MappingProxyType({"enterprise": replace(ENTERPRISE, subsidiaries_max=3)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("handlers.access.enterprise.PLANS", fewer)
        answer = attach(house, parent, other.org_id)
    is_problem(answer, 422)
    assert answer.json()["errors"][0]["keyword"] == "quota"
    first = listed(house, parent, limit=2)
    assert first["next_cursor"]
    rest = listed(house, parent, limit=2, cursor=first["next_cursor"])
    found = [one["org_id"] for page in (first, rest) for one in page["items"]]
    assert found == sorted((one.org_id for one in others), reverse=True)


@pytest.mark.every_database  # what locks is the database
def test_of_many_at_once_one_attaches(house: House, owner: Person, other: Tenant) -> None:
    parents = [house.tenant(f"P{n}", plan="enterprise", owner=owner) for n in range(4)]
    assert all(make(house, one).is_success for one in parents)
    asked = [
        ("POST", f"{one.path}/enterprise/subsidiaries", owner.session, {"json": body})
        for body in [{"org_id": other.org_id}]
        for one in parents * 5
    ]
    answers = house.together(*asked)
    assert sorted(each.status_code for each in answers) == [201, *[409] * 19]
    with house.database.read() as db:
        rows = select(func.count()).select_from(EnterpriseOrg)
        assert db.scalar(rows.where(EnterpriseOrg.org_id == other.org_id)) == 1


@pytest.mark.every_database  # what locks is the database
def test_neither_cycles_nor_chains_come_of_what_is_asked_at_once(
    house: House, owner: Person
) -> None:
    """Each becomes a parent and is attached to the other at the same time."""
    one, two = (house.tenant(name, plan="enterprise", owner=owner) for name in ("One", "Two"))
    asked: list[tuple[Any, ...]] = []
    for _ in range(5):
        for first, second in ((one, two), (two, one)):
            path = f"{first.path}/enterprise"
            attached = {"json": {"org_id": second.org_id}}
            asked.append(("POST", path, owner.session, {"json": {}}))
            asked.append(("POST", f"{path}/subsidiaries", owner.session, attached))
    assert {each.status_code for each in house.together(*asked)} <= {201, 409}
    roles = {shown(house, each)["role"] for each in (one, two)}
    assert roles in ({"parent"}, {"parent", "subsidiary"}, {"none", "parent"})


def test_an_attachment_is_replayed_and_done_once(
    house: House, parent: Tenant, other: Tenant
) -> None:
    path = f"{parent.path}/enterprise/subsidiaries"
    options = {"headers": {"Idempotency-Key": "attach-it-once"}, "json": {"org_id": other.org_id}}
    first, again = (house.post(path, parent.owner.session, **options) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
