"""Predefined roles: changed and reset by the organization, for people and keys at once."""

from typing import Any

import pytest

from contract_tests.api.access.team_helpers import in_team, team
from contract_tests.api.harness import House, Tenant
from contract_tests.api.roles.role_helpers import assign, entries, mine, role
from contract_tests.api.rows import is_problem
from control.policy.permissions import ROLES, TEAM_ROLES

Body = dict[str, Any]


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant(plan="team")


def change(house: House, tenant: Tenant, name: str, *held: str, scope: str = "org") -> Body:
    path = f"{tenant.path}/predefined-roles/{name}?scope={scope}"
    answer = house.request("PATCH", path, tenant.key, json={"permissions": list(held)})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_changed_role_holds_for_people_and_keys_from_the_next_request_on(
    house: House, tenant: Tenant
) -> None:
    ada = house.member(tenant.org_id, "member")
    key = house.key(tenant.org_id, ada, "member")[0]
    assert house.get(f"{tenant.path}/instances", ada.session).status_code == 200
    told = change(house, tenant, "member", "org:read", "audit:read")
    assert told["permissions"] == ["audit:read", "org:read"]
    assert told["default_permissions"] == sorted(ROLES["member"])
    for token in (ada.session, key):
        assert mine(house, tenant, token)["permissions"] == ["audit:read", "org:read"]
        is_problem(house.get(f"{tenant.path}/instances", token), 403, "permission_missing")
    reset = house.post(f"{tenant.path}/predefined-roles/member/actions/reset", tenant.key)
    assert reset.json()["permissions"] == sorted(ROLES["member"])
    assert house.get(f"{tenant.path}/instances", ada.session).status_code == 200
    (entry,) = entries(house, tenant, "predefined_role.update")
    assert entry["detail"]["role"] == "member"
    assert entry["detail"]["permissions"] == ["audit:read", "org:read"]


def test_a_role_in_teams_is_another_one_of_the_same_name(house: House, tenant: Tenant) -> None:
    blue = team(house, tenant)
    lead = in_team(house, tenant, blue, "admin")
    change(house, tenant, "admin", "instances:read", scope="team")
    team_id = blue.rpartition("/")[2]
    (held,) = mine(house, tenant, lead.session)["in_teams"]
    assert held == {"team_id": team_id, "permissions": ["instances:read"]}
    listed = house.get(f"{tenant.path}/predefined-roles", tenant.key).json()["items"]
    by_name = {(one["scope"], one["role"]): one for one in listed}
    assert by_name["org", "admin"]["permissions"] == sorted(ROLES["admin"])
    assert by_name["team", "admin"]["default_permissions"] == sorted(TEAM_ROLES["admin"])


def test_what_cannot_be_is_refused_precisely(house: House, tenant: Tenant) -> None:
    def refused(name: str, scope: str, *held: str) -> Any:
        path = f"{tenant.path}/predefined-roles/{name}?scope={scope}"
        return house.request("PATCH", path, tenant.key, json={"permissions": list(held)})

    is_problem(refused("owner", "org", "org:read"), 409, "conflict")
    is_problem(refused("viewer", "org", "org:read"), 404, "not_found")
    is_problem(refused("member", "team", "logs:read"), 404, "not_found")
    answer = refused("viewer", "team", "logs:read", "audit:read")
    is_problem(answer, 422)
    assert answer.json()["errors"][0]["pointer"] == "/permissions/1"
    is_problem(refused("member", "org", "no:such"), 422)
    small = house.tenant(plan="free")
    path = f"{small.path}/predefined-roles/member"
    answer = house.request("PATCH", path, small.key, json={"permissions": []})
    is_problem(answer, 403, "plan_required")


def test_nobody_changes_a_role_beyond_their_own_rights(house: House, tenant: Tenant) -> None:
    admin = house.member(tenant.org_id, "admin")
    path = f"{tenant.path}/predefined-roles/admin"
    more = house.request("PATCH", path, admin.session, json={"permissions": ["org:close"]})
    is_problem(more, 403, "role_exceeds_yours")
    manager = house.member(tenant.org_id, "member")
    managing = role(house, tenant, "roles:write", name="manages roles")
    assign(house, managing, tenant.key, manager.id)
    for name in ("admin", "member", "auditor"):
        own = f"{tenant.path}/predefined-roles/{name}"
        less = house.request("PATCH", own, manager.session, json={"permissions": []})
        is_problem(less, 403, "role_exceeds_yours")
        is_problem(house.post(f"{own}/actions/reset", manager.session), 403, "role_exceeds_yours")


def test_an_admin_who_locks_admins_out_is_undone_by_an_owner(house: House, tenant: Tenant) -> None:
    admin = house.member(tenant.org_id, "admin")
    path = f"{tenant.path}/predefined-roles/admin"
    assert house.request("PATCH", path, admin.session, json={"permissions": []}).is_success
    is_problem(house.post(f"{path}/actions/reset", admin.session), 403, "permission_missing")
    assert house.post(f"{path}/actions/reset", tenant.owner.session).is_success
    assert house.get(f"{tenant.path}/roles", admin.session).status_code == 200
