"""Who is in a team: put in, given another role, taken out, and by whom."""

from collections.abc import Callable
from typing import Any

import pytest

from contract_tests.api import second_factor
from contract_tests.api.access.team_helpers import (
    everyone,
    in_team,
    last_audited,
    outsider,
    put,
    team,
)
from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.rows import is_problem
from control.policy.permissions import TEAM_ROLES


@pytest.fixture(scope="module")
def tenant(house: House) -> Tenant:
    made = house.tenant()
    house.instance(made)
    return made


@pytest.fixture
def blue(house: House, tenant: Tenant) -> str:
    return team(house, tenant)


Members = Callable[[str], dict[str, str | None]]


@pytest.fixture
def members(house: House, tenant: Tenant) -> Members:
    """The roles of those in the team of this path, by their ids."""

    def listed(path: str) -> dict[str, str | None]:
        items = house.get(f"{path}/members", tenant.key).json()["items"]
        assert house.get(path, tenant.key).json()["members"] == len(items)
        return {one["user_id"]: one["role"] for one in items}

    return listed


def take_out(house: House, path: str, token: str, person: Person) -> Any:
    return house.request("DELETE", f"{path}/members/{person.id}", token)


def sees_everyones(house: House, tenant: Tenant, person: Person) -> bool:
    answer = house.get(f"{tenant.path}/instances", person.session)
    return answer.is_success and bool(answer.json()["items"])


def test_a_member_is_put_in_given_another_role_and_taken_out(
    house: House, tenant: Tenant, blue: str, members: Members
) -> None:
    person, team_id = outsider(house, tenant), blue.rpartition("/")[2]
    mine = f"{tenant.path}/me/permissions"
    assert "instances:write" not in house.get(mine, person.session).json()["permissions"]
    answer = put(house, blue, tenant.key, person, None)
    assert answer.status_code == 200
    shown = answer.json()
    told = {"user_id": person.id, "email": person.email, "name": "member", "role": "operator"}
    assert shown == {**told, "created_at": shown["created_at"]}
    changes = {"in_team": {"from": False, "to": True}, "role": {"from": None, "to": "operator"}}
    detail: dict[str, Any] = {"user_id": person.id, "role": "operator", "changes": changes}
    assert last_audited(house, tenant) == ("team.member.set", team_id, detail)
    assert "instances:write" in house.get(mine, person.session).json()["permissions"]

    again = put(house, blue, tenant.key, person, "viewer").json()
    assert again == {**shown, "role": "viewer"}
    assert members(blue) == {person.id: "viewer"}
    assert "instances:write" not in house.get(mine, person.session).json()["permissions"]

    assert take_out(house, blue, tenant.key, person).status_code == 204
    detail = {"user_id": person.id, "role": "viewer"}
    assert last_audited(house, tenant) == ("team.member.remove", team_id, detail)
    assert members(blue) == {}
    is_problem(take_out(house, blue, tenant.key, person), 404, "not_found")


def test_members_are_listed_a_page_at_a_time(house: House, tenant: Tenant, blue: str) -> None:
    people = [in_team(house, tenant, blue, role).id for role in TEAM_ROLES]
    found, cursor = [], None
    for _ in people:
        params: dict[str, Any] = {"limit": 1} | ({"cursor": cursor} if cursor else {})
        page = house.get(f"{blue}/members", tenant.key, params=params).json()
        found += [one["user_id"] for one in page["items"]]
        cursor = page["next_cursor"]
    assert (found, cursor) == (sorted(people, reverse=True), None)


def test_who_is_no_member_of_the_organization_is_in_none_of_its_teams(
    house: House, tenant: Tenant, blue: str
) -> None:
    stranger = house.person()
    for path in (blue, everyone(tenant)):
        is_problem(put(house, path, tenant.key, stranger, "viewer"), 404, "not_found")
        is_problem(take_out(house, path, tenant.key, stranger), 404, "not_found")
    member = in_team(house, tenant, blue, "viewer")
    is_problem(put(house, blue, stranger.session, member, "admin"), 404, "not_found")
    is_problem(house.get(f"{blue}/members", stranger.session), 404, "not_found")


@pytest.mark.parametrize("body", [{"role": "owner"}, {"role": None}, {"roles": []}, []])
def test_there_are_three_roles(
    house: House, tenant: Tenant, blue: str, members: Members, body: Any
) -> None:
    path = f"{blue}/members/{tenant.owner.id}"
    is_problem(house.request("PUT", path, tenant.key, json=body), 422)
    assert members(blue) == {}


def test_who_leads_a_team_decides_who_is_in_it(
    house: House, tenant: Tenant, blue: str, members: Members
) -> None:
    lead, other = in_team(house, tenant, blue, "admin"), outsider(house, tenant)
    for role in ("viewer", "operator", "admin"):
        assert put(house, blue, lead.session, other, role).json()["role"] == role
    assert take_out(house, blue, other.session, lead).status_code == 204
    assert members(blue) == {other.id: "admin"}
    is_problem(put(house, blue, lead.session, lead, "admin"), 403, "permission_missing")


@pytest.mark.parametrize("role", ["operator", "viewer"])
def test_nobody_else_in_a_team_raises_themselves_or_anybody(
    house: House, tenant: Tenant, blue: str, role: str, members: Members
) -> None:
    person, other = in_team(house, tenant, blue, role), outsider(house, tenant)
    for one in (person, other):
        for given in TEAM_ROLES:
            is_problem(put(house, blue, person.session, one, given), 403, "permission_missing")
    is_problem(take_out(house, blue, person.session, person), 403, "permission_missing")
    assert members(blue) == {person.id: role}


def test_a_lead_of_one_team_is_none_of_another(house: House, tenant: Tenant, blue: str) -> None:
    lead = in_team(house, tenant, blue, "admin")
    for path in (team(house, tenant, "Red"), everyone(tenant)):
        is_problem(put(house, path, lead.session, lead, "viewer"), 403, "permission_missing")
        is_problem(take_out(house, path, lead.session, tenant.owner), 403, "permission_missing")


def test_a_key_gives_no_more_than_its_scopes_hold(
    house: House, tenant: Tenant, blue: str, members: Members
) -> None:
    person = outsider(house, tenant)
    scopes = ["team:write", *TEAM_ROLES["viewer"]]
    key, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=scopes)
    refused = put(house, blue, key, person, "operator")
    is_problem(refused, 403, "permission_missing")
    assert "backups:write" in refused.json()["detail"]
    assert "instances:read" not in refused.json()["detail"]
    assert members(blue) == {}
    assert put(house, blue, key, person, "viewer").status_code == 200
    is_problem(put(house, blue, key, person, "admin"), 403, "permission_missing")
    assert members(blue) == {person.id: "viewer"}
    # What the member gets in Everyone is of their role in the organization, whatever is asked.
    refused = put(house, everyone(tenant), key, person, "viewer")
    is_problem(refused, 403, "permission_missing")
    assert not sees_everyones(house, tenant, person)


def test_a_key_of_a_lead_leads_their_team_alone(
    house: House, tenant: Tenant, blue: str, members: Members
) -> None:
    lead, other = house.member(tenant.org_id, "developer"), outsider(house, tenant)
    put(house, blue, tenant.key, lead, "admin")
    path = f"{tenant.path}/api-keys"
    scopes = ["team:write", "teams:read", *TEAM_ROLES["viewer"]]
    body = {"name": "k", "role": "admin", "scopes": [*scopes, "teams:write"]}
    is_problem(house.post(path, lead.session, json=body), 403)
    body = {"name": "k", "role": "admin", "scopes": scopes}
    key = house.post(path, lead.session, json=body).json()["key"]
    assert put(house, blue, key, other, "viewer").status_code == 200
    for team_path, role in ((blue, "operator"), (everyone(tenant), "viewer")):
        is_problem(put(house, team_path, key, other, role), 403, "permission_missing")
    plain, _ = house.key(tenant.org_id, lead, "developer")
    is_problem(take_out(house, blue, plain, other), 403, "permission_missing")
    assert members(blue) == {lead.id: "admin", other.id: "viewer"}


def test_a_lead_with_a_second_factor_is_asked_for_it(
    house: House, tenant: Tenant, blue: str
) -> None:
    lead = in_team(house, tenant, blue, "admin")
    second_factor.enrolled(house, lead)
    without, other = house.session(lead.id), outsider(house, tenant)
    is_problem(put(house, blue, without, other, "viewer"), 403, "mfa_required")
    assert put(house, blue, lead.session, other, "viewer").is_success
    assert take_out(house, blue, without, other).status_code == 204


def test_all_are_in_everyone_but_those_who_were_taken_out(
    house: House, tenant: Tenant, members: Members
) -> None:
    path, person = everyone(tenant), house.member(tenant.org_id, "developer")
    assert members(path)[person.id] is None
    assert sees_everyones(house, tenant, person)
    assert take_out(house, path, tenant.key, person).status_code == 204
    assert last_audited(house, tenant)[2] == {"user_id": person.id, "role": None}
    assert person.id not in members(path)
    assert not sees_everyones(house, tenant, person)
    assert house.get(f"{tenant.path}/teams", person.session).is_success
    is_problem(take_out(house, path, tenant.key, person), 404, "not_found")

    answer = put(house, path, tenant.key, person, "viewer")
    assert (answer.status_code, answer.json()["role"]) == (200, None)
    changes = {"in_team": {"from": False, "to": True}}
    told = {"user_id": person.id, "role": None, "changes": changes}
    assert last_audited(house, tenant)[2] == told
    assert members(path)[person.id] is None
    assert sees_everyones(house, tenant, person)
    made = house.post(f"{tenant.path}/projects", person.session, json={"name": "By role"})
    assert made.status_code == 201


def test_a_developer_of_everyone_does_not_lead_it(house: House, tenant: Tenant) -> None:
    path, developer = everyone(tenant), house.member(tenant.org_id, "developer")
    other = outsider(house, tenant)
    assert put(house, path, tenant.key, developer, "admin").json()["role"] is None
    is_problem(put(house, path, developer.session, other, "viewer"), 403, "permission_missing")
    is_problem(take_out(house, path, developer.session, other), 403, "permission_missing")


def test_an_auditor_can_have_more_in_everyone(
    house: House, tenant: Tenant, members: Members
) -> None:
    path, auditor = everyone(tenant), house.member(tenant.org_id, "auditor")
    project = {"name": "Audited"}
    is_problem(house.post(f"{tenant.path}/projects", auditor.session, json=project), 403)
    assert put(house, path, tenant.key, auditor, "viewer").json()["role"] is None
    assert put(house, path, tenant.key, auditor, "admin").json()["role"] == "admin"
    assert members(path)[auditor.id] == "admin"
    assert house.post(f"{tenant.path}/projects", auditor.session, json=project).is_success
    assert take_out(house, path, tenant.key, auditor).status_code == 204
    is_problem(house.post(f"{tenant.path}/projects", auditor.session, json=project), 403)
    assert sees_everyones(house, tenant, auditor)


@pytest.mark.parametrize("role", ["owner", "admin", "auditor"])
def test_who_holds_rights_in_every_team_keeps_them_outside_of_it(
    house: House, tenant: Tenant, role: str
) -> None:
    path, person = everyone(tenant), house.member(tenant.org_id, role)
    assert take_out(house, path, tenant.key, person).status_code == 204
    assert sees_everyones(house, tenant, person)
    assert put(house, path, tenant.key, person, "viewer").json()["role"] is None


@pytest.mark.every_database  # what locks is the database
def test_the_same_member_put_in_at_once_is_in_once(
    house: House, tenant: Tenant, blue: str, members: Members
) -> None:
    person = outsider(house, tenant)
    path = f"{blue}/members/{person.id}"
    roles = [*TEAM_ROLES] * 4
    asked: list[Any] = [("PUT", path, tenant.key, {"json": {"role": role}}) for role in roles]
    assert {one.status_code for one in house.together(*asked)} == {200}
    assert set(members(blue)) == {person.id}
