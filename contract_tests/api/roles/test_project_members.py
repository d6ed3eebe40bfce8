"""Members of projects: a role that holds in one project, wherever it is."""

from dataclasses import replace
from typing import Any

import pytest

from contract_tests.api.access.team_helpers import outsider, team
from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.roles.role_helpers import entries, mine
from contract_tests.api.rows import is_problem


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant(plan="team")


def path_of(tenant: Tenant, person: Person) -> str:
    return f"{tenant.path}/projects/{tenant.project_id}/members/{person.id}"


def put(house: House, tenant: Tenant, person: Person, role: str, by: str | None = None) -> Any:
    body = {"role": role}
    return house.request("PUT", path_of(tenant, person), by or tenant.key, json=body)


def test_a_role_in_a_project_shows_it_and_its_instances_and_no_others(
    house: House, tenant: Tenant
) -> None:
    ada = outsider(house, tenant)
    here = house.instance(tenant)
    other = house.post(f"{tenant.path}/projects", tenant.key, json={"name": "Other"}).json()["id"]
    elsewhere = house.instance(replace(tenant, project_id=other))
    is_problem(house.get(f"{tenant.path}/instances/{here}", ada.session), 403)
    assert put(house, tenant, ada, "viewer").is_success
    assert house.get(f"{tenant.path}/instances/{here}", ada.session).status_code == 200
    is_problem(house.get(f"{tenant.path}/instances/{elsewhere}", ada.session), 404)
    listed = house.get(f"{tenant.path}/instances", ada.session).json()["items"]
    assert [one["id"] for one in listed] == [here]
    projects = house.get(f"{tenant.path}/projects", ada.session).json()["items"]
    assert [one["id"] for one in projects] == [tenant.project_id]
    pause = f"{tenant.path}/instances/{here}/actions/pause"
    is_problem(house.post(pause, ada.session), 403, "permission_missing")
    put(house, tenant, ada, "developer")
    assert house.post(pause, ada.session).status_code == 202
    (entry, _) = entries(house, tenant, "project_member.set")
    changes = {"role": {"from": "viewer", "to": "developer"}}
    assert entry["detail"] == {"user_id": ada.id, "role": "developer", "changes": changes}


def test_it_follows_the_project_into_another_team(house: House, tenant: Tenant) -> None:
    ada, blue = outsider(house, tenant), team(house, tenant).rpartition("/")[2]
    put(house, tenant, ada, "viewer")
    project = f"{tenant.path}/projects/{tenant.project_id}"
    assert house.request("PATCH", project, tenant.key, json={"team_id": blue}).is_success
    assert house.get(project, ada.session).status_code == 200
    refused = house.request("DELETE", path_of(tenant, ada), ada.session)
    is_problem(refused, 403, "permission_missing")
    assert house.request("DELETE", path_of(tenant, ada), tenant.key).status_code == 204
    is_problem(house.get(project, ada.session), 403)
    is_problem(house.request("DELETE", path_of(tenant, ada), tenant.key), 404)


def test_an_admin_of_a_project_gives_no_more_than_they_have_there(
    house: House, tenant: Tenant
) -> None:
    lead, ada = outsider(house, tenant), house.member(tenant.org_id, "member")
    assert put(house, tenant, lead, "admin").is_success
    for role in ("viewer", "developer", "admin"):
        assert put(house, tenant, ada, role, lead.session).is_success
    rename = {"name": "Renamed"}
    project = f"{tenant.path}/projects/{tenant.project_id}"
    assert house.request("PATCH", project, lead.session, json=rename).is_success
    blue = team(house, tenant).rpartition("/")[2]
    moved = house.request("PATCH", project, lead.session, json={"team_id": blue})
    is_problem(moved, 403, "permission_missing")
    is_problem(house.post(f"{tenant.path}/projects", lead.session, json={"name": "New"}), 403)
    # A developer of the organization in Everyone leads no project.
    other = house.member(tenant.org_id, "developer")
    is_problem(put(house, tenant, ada, "viewer", other.session), 403, "permission_missing")


def test_they_end_with_the_project_and_the_membership(house: House, tenant: Tenant) -> None:
    ada, bob = outsider(house, tenant), outsider(house, tenant)
    for each in (ada, bob):
        put(house, tenant, each, "viewer")
    assert house.request("DELETE", f"{tenant.path}/members/{bob.id}", tenant.key).is_success
    listed = house.get(f"{tenant.path}/project-roles", tenant.key).json()["items"]
    assert [one["user_id"] for one in listed] == [ada.id]
    project = f"{tenant.path}/projects/{tenant.project_id}"
    assert house.request("DELETE", project, tenant.key).status_code == 204
    assert mine(house, tenant, ada.session)["in_projects"] == []
    assert house.get(f"{tenant.path}/project-roles", tenant.key).json()["items"] == []


def test_the_plan_gives_and_every_plan_takes(house: House) -> None:
    small = house.tenant(plan="team")
    ada = house.member(small.org_id, "member")
    put(house, small, ada, "viewer")
    house.change_org(small.org_id, plan="free")
    is_problem(put(house, small, ada, "admin"), 403, "plan_required")
    assert house.request("DELETE", path_of(small, ada), small.key).status_code == 204


def test_at_once_there_is_one_role(house: House, tenant: Tenant) -> None:
    ada = house.member(tenant.org_id, "member")
    roles = ["viewer", "developer", "admin"] * 4
    asked = (("PUT", path_of(tenant, ada), tenant.key, {"json": {"role": one}}) for one in roles)
    assert {one.status_code for one in house.together(*asked)} == {200}
    path = f"{tenant.path}/projects/{tenant.project_id}/members"
    assert len(house.get(path, tenant.key).json()["items"]) == 1
