"""Support grants: what support may, for how long, and that it ends at once."""

from datetime import timedelta
from typing import Any

import pytest

from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.roles.role_helpers import assign, entries, mine, role
from contract_tests.api.rows import is_problem
from storage.access.users import User


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant(plan="team")


@pytest.fixture
def support(house: House) -> Person:
    """Somebody of support, whose session has passed the second factor."""
    person = house.person("Support", mfa=True)
    with house.database.write() as db:
        db.get_one(User, person.id).is_support = True
    return person


def grant(house: House, tenant: Tenant, *held: str, **body: Any) -> Any:
    given = {"permissions": list(held), "reason": "slow since Monday", **body}
    return house.post(f"{tenant.path}/support-grants", tenant.key, json=given)


def revoke(house: House, tenant: Tenant, grant_id: str) -> None:
    path = f"{tenant.path}/support-grants/{grant_id}"
    assert house.request("DELETE", path, tenant.key).status_code == 204


def test_without_a_grant_there_is_no_such_organization(
    house: House, tenant: Tenant, support: Person
) -> None:
    for path in ("", "/instances", "/audit"):
        is_problem(house.get(f"{tenant.path}{path}", support.session), 404, "not_found")
    assert house.get("/v1/orgs", support.session).json() == []


def test_support_may_what_was_granted_until_it_is_revoked(
    house: House, tenant: Tenant, support: Person
) -> None:
    made = grant(house, tenant, "org:read", "instances:read", "instances:write")
    assert made.status_code == 201
    assert made.json()["status"] == "active"
    here = house.instance(tenant)
    path = f"{tenant.path}/instances/{here}"
    assert house.get(tenant.path, support.session).json()["role"] == "support"
    assert mine(house, tenant, support.session)["role"] == "support"
    assert house.get(path, support.session).status_code == 200
    is_problem(house.get(f"{tenant.path}/audit", support.session), 403, "permission_missing")
    assert house.post(f"{path}/actions/pause", support.session).status_code == 202
    (entry,) = entries(house, tenant, "instance.pause")
    assert (entry["actor_kind"], entry["actor_id"]) == ("user", support.id)
    assert entry["detail"]["support_grants"] == [made.json()["id"]]
    revoke(house, tenant, made.json()["id"])
    is_problem(house.get(path, support.session), 404)
    listed = house.get(f"{tenant.path}/support-grants", tenant.key).json()["items"]
    assert [one["status"] for one in listed] == ["revoked"]


def test_it_ends_by_itself(house: House, tenant: Tenant, support: Person) -> None:
    until = (house.now() + timedelta(hours=2)).isoformat().replace("+00:00", "Z")
    assert grant(house, tenant, "org:read", expires_at=until).status_code == 201
    assert house.get(tenant.path, support.session).status_code == 200
    house.pass_time(2 * 3600 + 1)
    session = house.session(support.id, mfa=True)
    is_problem(house.get(tenant.path, session), 404)
    listed = house.get(f"{tenant.path}/support-grants", tenant.key).json()["items"]
    assert [one["status"] for one in listed] == ["expired"]


def test_a_grant_for_some_instances_shows_no_others(
    house: House, tenant: Tenant, support: Person
) -> None:
    one, other = house.instance(tenant), house.instance(tenant)
    held = ("instances:read", "instances:write", "org:read", "members:read")
    assert grant(house, tenant, *held, instance_ids=[one]).status_code == 201
    path = f"{tenant.path}/instances"
    assert house.get(f"{path}/{one}", support.session).status_code == 200
    is_problem(house.get(f"{path}/{other}", support.session), 404)
    listed = house.get(path, support.session).json()["items"]
    assert [each["id"] for each in listed] == [one]
    # Nothing of the organization but that it is there.
    is_problem(house.get(f"{tenant.path}/members", support.session), 403)
    told = mine(house, tenant, support.session)
    assert told["in_org"] == ["org:read"]
    # What is made of the instance would be another one.
    branch = house.post(f"{path}/{one}/branches", support.session, json={"name": "branch"})
    is_problem(branch, 403, "permission_missing")


def test_support_needs_a_second_factor_and_a_session(
    house: House, tenant: Tenant, support: Person
) -> None:
    grant(house, tenant, "org:read")
    weak = house.session(support.id)
    is_problem(house.get(tenant.path, weak), 403, "mfa_required")
    key = house.key(tenant.org_id, support, "owner")[0]
    is_problem(house.get(tenant.path, key), 401)


def test_nobody_else_comes_in_by_it(house: House, tenant: Tenant, support: Person) -> None:
    other = house.tenant()
    grant(house, tenant, "org:read", "instances:read")
    is_problem(house.get(tenant.path, house.person(mfa=True).session), 404)
    is_problem(house.get(other.path, support.session), 404)
    with house.database.write() as db:
        db.get_one(User, support.id).is_support = False
    is_problem(house.get(tenant.path, support.session), 404)


def test_a_member_who_is_of_support_has_their_own_rights_alone(
    house: House, tenant: Tenant, support: Person
) -> None:
    ada = house.member(tenant.org_id, "member")
    with house.database.write() as db:
        db.get_one(User, ada.id).is_support = True
    grant(house, tenant, "audit:read")
    is_problem(house.get(f"{tenant.path}/audit", ada.session), 403, "permission_missing")


@pytest.mark.parametrize(
    "permission",
    ["credentials:reveal", "console:open", "data:export", "api-keys:write", "roles:write"],
)
def test_what_leads_to_data_or_rights_cannot_be_granted(
    house: House, tenant: Tenant, permission: str
) -> None:
    refused = grant(house, tenant, "org:read", permission)
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["pointer"] == "/permissions/1"


def test_nobody_grants_what_they_do_not_have(house: House, tenant: Tenant) -> None:
    manager, here = house.member(tenant.org_id, "member"), house.instance(tenant)
    granting = role(house, tenant, "support-grants:write", name="grants")
    assign(house, granting, tenant.key, manager.id)
    path = f"{tenant.path}/support-grants"

    def asked(*held: str, **body: Any) -> Any:
        given = {"permissions": list(held), "reason": "r", **body}
        return house.post(path, manager.session, json=given)

    is_problem(asked("audit:read"), 403, "role_exceeds_yours")
    # They hold it in Everyone, and a grant for the organization is one for every team.
    is_problem(asked("instances:read"), 403, "role_exceeds_yours")
    assert asked("instances:read", instance_ids=[here]).status_code == 201


def test_times_and_numbers_are_held_to(house: House, tenant: Tenant) -> None:
    for distance in (timedelta(minutes=50), timedelta(days=7, minutes=10), timedelta(-1)):
        until = (house.now() + distance).isoformat().replace("+00:00", "Z")
        refused = grant(house, tenant, "org:read", expires_at=until)
        is_problem(refused, 422)
        assert refused.json()["errors"][0]["pointer"] == "/expires_at"
    asked = (
        "POST", f"{tenant.path}/support-grants", tenant.key,
        {"json": {"permissions": ["org:read"], "reason": "r"}},
    )  # fmt: skip
    answers = house.together(*(asked for _ in range(24)))
    assert sorted(one.status_code for one in answers) == [201] * 20 + [422] * 4
