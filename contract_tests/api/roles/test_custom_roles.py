"""Custom roles: made of what their maker has, given where the giver has it, ended at once."""

import pytest

from contract_tests.api.access.team_helpers import outsider, team
from contract_tests.api.harness import House, Tenant
from contract_tests.api.roles.role_helpers import assign, entries, mine, role
from contract_tests.api.rows import is_problem


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant(plan="team")


def test_a_role_gives_what_it_holds_from_the_next_request_on(house: House, tenant: Tenant) -> None:
    ada = house.member(tenant.org_id, "auditor")
    path = role(house, tenant, "instances:write", "members:write")
    assert "members:write" not in mine(house, tenant, ada.session)["in_org"]
    given = assign(house, path, tenant.key, ada.id)
    assert given.status_code == 201
    assert {"instances:write", "members:write"} <= set(mine(house, tenant, ada.session)["in_org"])
    (entry,) = entries(house, tenant, "role_assignment.create")
    assert entry["detail"] == {
        "role_id": path.rpartition("/")[2], "user_id": ada.id, "team_id": None,
    }  # fmt: skip
    ended = house.request("DELETE", f"{path}/assignments/{given.json()['id']}", tenant.key)
    assert ended.status_code == 204
    assert "members:write" not in mine(house, tenant, ada.session)["permissions"]


def test_in_a_team_it_holds_there_alone(house: House, tenant: Tenant) -> None:
    ada = outsider(house, tenant)
    blue = team(house, tenant).rpartition("/")[2]
    path = role(house, tenant, "instances:read", "logs:read")
    assert assign(house, path, tenant.key, ada.id, blue).status_code == 201
    told = mine(house, tenant, ada.session)
    held = ["instances:read", "logs:read"]
    assert told["in_teams"] == [{"team_id": blue, "permissions": held}]
    assert "instances:read" not in told["in_org"]
    # What no team has is refused, and not left out.
    of_org = role(house, tenant, "instances:read", "audit:read", name="both")
    refused = assign(house, of_org, tenant.key, ada.id, blue)
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["pointer"] == "/team_id"
    assert "audit:read" in refused.json()["errors"][0]["message"]


def test_nobody_makes_gives_or_takes_more_than_they_have(house: House, tenant: Tenant) -> None:
    manager = house.member(tenant.org_id, "member")
    managing = role(house, tenant, "roles:write", "roles:read", name="manages roles")
    assert assign(house, managing, tenant.key, manager.id).status_code == 201
    body = {"name": "more", "permissions": ["instances:read", "org:close"]}
    made = house.post(f"{tenant.path}/roles", manager.session, json=body)
    is_problem(made, 403, "role_exceeds_yours")
    assert "org:close" in made.json()["detail"]
    assert "instances:read" not in made.json()["detail"]
    # They hold instances:read in Everyone alone: not to be given for every team.
    reading = {"name": "reads", "permissions": ["instances:read"]}
    own = house.post(f"{tenant.path}/roles", manager.session, json=reading).json()["id"]
    path, blue = f"{tenant.path}/roles/{own}", team(house, tenant).rpartition("/")[2]
    for team_id in (None, blue):
        refused = assign(house, path, manager.session, manager.id, team_id)
        is_problem(refused, 403, "role_exceeds_yours")
    everyone = f"team_{tenant.org_id.removeprefix('org_')}"
    assert assign(house, path, manager.session, manager.id, everyone).status_code == 201
    # Neither can they take the strong role from somebody, nor delete it.
    strong = role(house, tenant, "members:write", name="strong")
    given = assign(house, strong, tenant.key, manager.id).json()["id"]
    weaker = house.member(tenant.org_id, "member")
    assert assign(house, managing, tenant.key, weaker.id).status_code == 201
    for gone in (strong, f"{strong}/assignments/{given}"):
        refused = house.request("DELETE", gone, weaker.session)
        is_problem(refused, 403, "role_exceeds_yours")


def test_it_does_not_end_with_the_rights_of_whoever_made_it(house: House, tenant: Tenant) -> None:
    maker = house.member(tenant.org_id, "admin")
    body = {"name": "audits", "permissions": ["audit:read"]}
    made = house.post(f"{tenant.path}/roles", maker.session, json=body).json()["id"]
    ada = house.member(tenant.org_id, "member")
    assign(house, f"{tenant.path}/roles/{made}", tenant.key, ada.id)
    path = f"{tenant.path}/members/{maker.id}"
    assert house.request("PATCH", path, tenant.key, json={"role": "member"}).is_success
    assert house.get(f"{tenant.path}/audit", ada.session).status_code == 200
    assert house.request("DELETE", path, tenant.key).status_code == 204
    assert house.get(f"{tenant.path}/audit", ada.session).status_code == 200


def test_it_ends_with_the_role_the_team_and_the_membership(house: House, tenant: Tenant) -> None:
    ada, bob = (house.member(tenant.org_id, "auditor") for _ in range(2))
    blue = team(house, tenant)
    path = role(house, tenant, "instances:write")
    assign(house, path, tenant.key, ada.id, blue.rpartition("/")[2])
    assign(house, path, tenant.key, bob.id)
    assert house.request("DELETE", blue, tenant.key).status_code == 204
    assert house.request("DELETE", f"{tenant.path}/members/{bob.id}", tenant.key).is_success
    assert house.get(f"{path}/assignments", tenant.key).json()["items"] == []
    assign(house, path, tenant.key, ada.id)
    assert "instances:write" in mine(house, tenant, ada.session)["in_org"]
    assert house.request("DELETE", path, tenant.key).status_code == 204
    assert "instances:write" not in mine(house, tenant, ada.session)["permissions"]
    (entry,) = entries(house, tenant, "role.delete")
    assert entry["detail"] == {"name": "a role", "assignments_ended": 1}


def test_a_name_and_an_assignment_are_there_once_also_at_once(house: House, tenant: Tenant) -> None:
    body = {"name": "one", "permissions": ["org:read"]}
    asked = ("POST", f"{tenant.path}/roles", tenant.key)
    made = house.together(*((*asked, {"json": body}) for _ in range(8)))
    assert sorted(one.status_code for one in made) == [201] + [409] * 7
    path = f"{tenant.path}/roles/{next(one.json()['id'] for one in made if one.is_success)}"
    ada = house.member(tenant.org_id, "member")
    given = ("POST", f"{path}/assignments", tenant.key, {"json": {"user_id": ada.id}})
    answers = house.together(*(given for _ in range(8)))
    assert sorted(one.status_code for one in answers) == [201] + [409] * 7


def test_the_plan_and_the_number_are_held_to(house: House) -> None:
    small = house.tenant(plan="solo")
    body = {"name": "one", "permissions": ["org:read"]}
    refused = house.post(f"{small.path}/roles", small.key, json=body)
    is_problem(refused, 403, "plan_required")
    assert "team or enterprise" in refused.json()["detail"]
    tenant = house.tenant(plan="team")
    for n in range(100):
        role(house, tenant, "org:read", name=f"role {n}")
    is_problem(house.post(f"{tenant.path}/roles", tenant.key, json=body), 422)


def test_a_member_with_a_custom_role_is_beyond_the_reach_of_who_has_less(
    house: House, tenant: Tenant
) -> None:
    """A weaker manager of members neither removes nor demotes somebody stronger by a role."""
    weak, strong = (house.member(tenant.org_id, "member") for _ in range(2))
    managing = role(house, tenant, "members:write", name="manages members")
    audits = role(house, tenant, "audit:read", name="audits")
    assign(house, managing, tenant.key, weak.id)
    assign(house, audits, tenant.key, strong.id)
    path = f"{tenant.path}/members/{strong.id}"
    for answer in (
        house.request("DELETE", path, weak.session),
        house.request("PATCH", path, weak.session, json={"role": "member"}),
    ):
        is_problem(answer, 403, "role_exceeds_yours")
    # To be an auditor is to read in every team, which a member of Everyone does not.
    answer = house.request(
        "PATCH", f"{tenant.path}/members/{weak.id}", weak.session, json={"role": "auditor"}
    )
    is_problem(answer, 403, "role_exceeds_yours")
