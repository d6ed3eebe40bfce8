"""What permissions and roles there are, and what a caller holds where."""

from contract_tests.api.harness import House, Person
from control.policy.permissions import CATALOGUE, ROLES, TEAM, TEAM_ROLES
from storage.access import memberships, teams


def test_each_permission_is_shown_with_what_it_allows(house: House) -> None:
    tenant = house.tenant()
    found = house.get(f"{tenant.path}/permissions", tenant.key).json()["items"]
    assert {one["name"]: one["allows"] for one in found} == dict(CATALOGUE)
    assert {one["name"] for one in found if one["scope"] == "team"} == TEAM


def test_each_role_is_shown_with_what_it_holds(house: House) -> None:
    tenant = house.tenant()
    found = house.get(f"{tenant.path}/predefined-roles", tenant.key).json()["items"]
    assert [(one["scope"], one["role"]) for one in found] == [
        *(("org", role) for role in ROLES),
        *(("team", role) for role in TEAM_ROLES),
    ]
    for one in found:
        held = (ROLES if one["scope"] == "org" else TEAM_ROLES)[one["role"]]
        assert set(one["permissions"]) == set(one["default_permissions"]) == held


def test_a_caller_sees_what_is_held_in_which_team(house: House) -> None:
    tenant = house.tenant(plan="team")
    member = house.member(tenant.org_id, "member")
    everyone = teams.everyone_of(tenant.org_id)
    shown = mine(house, tenant.path, member)
    assert set(shown["in_org"]) == ROLES["member"] - TEAM
    assert shown["in_teams"] == [
        {"team_id": everyone, "permissions": sorted(ROLES["member"] & TEAM)}
    ]
    assert set(shown["permissions"]) == ROLES["member"]
    with house.database.write() as db:
        memberships.fetch(db, tenant.org_id, member.id).teams_only = True
    shown = mine(house, tenant.path, member)
    assert shown["in_teams"] == []
    assert set(shown["permissions"]) == ROLES["member"] - TEAM


def mine(house: House, path: str, person: Person) -> dict[str, list[object]]:
    found: dict[str, list[object]] = house.get(f"{path}/me/permissions", person.session).json()
    return found
