"""Teams through the API: made, changed and deleted, by whom, and how many there can be."""

from dataclasses import replace
from typing import Any

import pytest

from contract_tests.api.access.team_helpers import everyone, in_team, last_audited, put, team
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from control.policy.plans import PLANS
from storage.access import teams


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


def id_of(path: str) -> str:
    return path.rpartition("/")[2]


def test_a_team_is_made_changed_and_deleted(house: House, tenant: Tenant) -> None:
    body = {"name": "Blue Sky", "cost_centre": "4711", "monthly_budget_cents": 50_000}
    made = house.post(f"{tenant.path}/teams", tenant.key, json=body)
    assert made.status_code == 201
    shown, path = made.json(), made.headers["location"]
    told = {**body, "slug": "blue-sky", "org_id": tenant.org_id, "is_default": False, "members": 0}
    assert told.items() <= shown.items()
    assert shown["id"].startswith("team_")
    assert path == f"{tenant.path}/teams/{shown['id']}"
    audited = last_audited(house, tenant)
    assert audited == ("team.create", shown["id"], {**body, "slug": "blue-sky"})
    assert house.get(path, tenant.key).json() == shown

    change = {"name": "Sky", "slug": "sky", "cost_centre": None, "monthly_budget_cents": 0}
    changed = house.request("PATCH", path, tenant.key, json=change)
    assert changed.json() == {**shown, **change}
    kind, target, detail = last_audited(house, tenant)
    changes = detail.pop("changes")
    assert (kind, target, detail) == ("team.update", shown["id"], change)
    assert changes["monthly_budget_cents"] == {"from": 50000, "to": 0}
    assert changes.keys() == change.keys()
    budget = {"monthly_budget_cents": None}
    changed = house.request("PATCH", path, tenant.key, json=budget)
    assert changed.json() == house.get(path, tenant.key).json() == {**shown, **change, **budget}

    assert house.request("DELETE", path, tenant.key).status_code == 204
    deleted = "team.delete", shown["id"], {"name": "Sky", "slug": "sky"}
    assert last_audited(house, tenant) == deleted
    is_problem(house.get(path, tenant.key), 404, "not_found")
    is_problem(house.request("DELETE", path, tenant.key), 404, "not_found")


def test_teams_are_listed_newest_first_a_page_at_a_time(house: House, tenant: Tenant) -> None:
    paths = [team(house, tenant, name) for name in ("Blue", "Red")]
    expected = [id_of(one) for one in (paths[1], paths[0], everyone(tenant))]
    put(house, paths[0], tenant.key, tenant.owner, "viewer")
    listed = house.get(f"{tenant.path}/teams", tenant.key).json()
    assert [one["id"] for one in listed["items"]] == expected
    assert [one["members"] for one in listed["items"]] == [0, 1, 1]
    assert [one["is_default"] for one in listed["items"]] == [False, False, True]
    found, cursor = [], None
    for _ in range(3):
        params: dict[str, Any] = {"limit": 1} | ({"cursor": cursor} if cursor else {})
        page = house.get(f"{tenant.path}/teams", tenant.key, params=params).json()
        found += [one["id"] for one in page["items"]]
        cursor = page["next_cursor"]
    assert (found, cursor) == (expected, None)


def test_slugs_are_unique_in_the_organization(house: House, tenant: Tenant) -> None:
    path = team(house, tenant, "Blue")
    twin = house.post(f"{tenant.path}/teams", tenant.key, json={"name": "Blue"}).json()
    assert twin["slug"].startswith("blue-")
    for slug in ("blue", "everyone"):
        body = {"name": "X", "slug": slug}
        taken = house.post(f"{tenant.path}/teams", tenant.key, json=body)
        is_problem(taken, 409, "conflict")
        assert taken.json()["detail"] == "a team with this slug already exists"
    is_problem(house.request("PATCH", path, tenant.key, json={"slug": twin["slug"]}), 409)
    other = house.tenant()
    assert team(house, other, "Blue")
    asked: list[Any] = [
        ("POST", f"{tenant.path}/teams", tenant.key, {"json": {"name": "N", "slug": "same"}})
    ]
    answers = house.together(*(asked * 2))
    assert sorted(one.status_code for one in answers) == [201, 409]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"monthly_budget_cents": -1}, "/monthly_budget_cents"),
        ({"monthly_budget_cents": 1.5}, "/monthly_budget_cents"),
        ({"monthly_budget_cents": 10**15}, "/monthly_budget_cents"),
        ({"cost_centre": ""}, "/cost_centre"),
        ({"name": None}, "/name"),
        ({"is_default": True}, ""),
    ],
)
def test_what_a_team_cannot_be_changed_to(
    house: House, tenant: Tenant, body: dict[str, Any], pointer: str
) -> None:
    refused = house.request("PATCH", everyone(tenant), tenant.key, json=body)
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["pointer"].startswith(pointer)


def test_everyone_keeps_its_name_and_stays(house: House, tenant: Tenant) -> None:
    path = everyone(tenant)
    before = house.get(path, tenant.key).json()
    assert (before["name"], before["slug"], before["is_default"]) == ("Everyone", "everyone", True)
    for body in ({"name": "All"}, {"slug": "all"}, {"name": "All", "cost_centre": "1"}):
        refused = house.request("PATCH", path, tenant.key, json=body)
        is_problem(refused, 409, "conflict")
        assert "the name or the slug of the default team Everyone" in refused.json()["detail"]
    refused = house.request("DELETE", path, tenant.key)
    is_problem(refused, 409, "conflict")
    assert refused.json()["detail"] == (
        "cannot delete the default team Everyone: every organization has it"
    )
    assert house.get(path, tenant.key).json() == before
    given = {"name": "Everyone", "cost_centre": "4711", "monthly_budget_cents": 1}
    changed = house.request("PATCH", path, tenant.key, json=given)
    assert changed.json() == {**before, **given}


def test_who_leads_a_team_changes_its_name_and_cost_centre_alone(
    house: House, tenant: Tenant
) -> None:
    blue, red = team(house, tenant, "Blue"), team(house, tenant, "Red")
    lead = in_team(house, tenant, blue, "admin").session
    changed = house.request("PATCH", blue, lead, json={"name": "Azure", "cost_centre": "1"})
    assert (changed.json()["name"], changed.json()["cost_centre"]) == ("Azure", "1")
    beyond: list[tuple[dict[str, Any], str]] = [
        ({"slug": "azure"}, "/slug"),
        ({"monthly_budget_cents": 1}, "/monthly_budget_cents"),
        ({"name": "B", "monthly_budget_cents": 1, "slug": "b"}, "/monthly_budget_cents, /slug"),
    ]
    for body, named in beyond:
        refused = house.request("PATCH", blue, lead, json=body)
        is_problem(refused, 403, "permission_missing")
        assert refused.json()["permission"] == "teams:write"
        assert f"teams:write to set {named}, which" in refused.json()["detail"]
    assert house.get(blue, lead).json()["name"] == "Azure"
    for path in (red, everyone(tenant)):
        refused = house.request("PATCH", path, lead, json={"name": "Mine"})
        is_problem(refused, 403, "permission_missing")
        assert refused.json()["permission"] == "team:write"
    is_problem(house.request("DELETE", blue, lead), 403, "permission_missing")
    mine = house.post(f"{tenant.path}/teams", lead, json={"name": "Mine"})
    is_problem(mine, 403, "permission_missing")


@pytest.mark.parametrize("role", ["developer", "member", "auditor"])
def test_others_see_teams_and_change_none(house: House, tenant: Tenant, role: str) -> None:
    blue = team(house, tenant)
    person = house.member(tenant.org_id, role)
    assert house.get(blue, person.session).is_success
    assert len(house.get(f"{tenant.path}/teams", person.session).json()["items"]) == 2
    for path in (blue, everyone(tenant)):
        for body in ({"cost_centre": "1"}, {"name": "X"}):
            refused = house.request("PATCH", path, person.session, json=body)
            is_problem(refused, 403, "permission_missing")
        is_problem(put(house, path, person.session, person, "admin"), 403, "permission_missing")


def test_a_key_has_what_its_scopes_leave(house: House, tenant: Tenant) -> None:
    blue = team(house, tenant)
    reading, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=["teams:read"])
    assert house.get(blue, reading).is_success
    refused = house.request("PATCH", blue, reading, json={"name": "X"})
    is_problem(refused, 403, "permission_missing")
    leading, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=["team:write"])
    assert house.request("PATCH", blue, leading, json={"name": "X"}).is_success
    is_problem(house.get(blue, leading), 403, "permission_missing")
    refused = house.request("PATCH", blue, leading, json={"slug": "x"})
    is_problem(refused, 403, "permission_missing")
    refused = house.post(f"{tenant.path}/teams", leading, json={"name": "X"})
    is_problem(refused, 403, "permission_missing")


def test_a_team_goes_once_nothing_belongs_to_it(house: House, tenant: Tenant) -> None:
    blue = team(house, tenant)
    person = in_team(house, tenant, blue, "operator")
    of_blue = {"team_id": id_of(blue)}
    project = f"{tenant.path}/projects/{tenant.project_id}"
    assert house.request("PATCH", project, tenant.key, json=of_blue).is_success
    first, second = house.instance(tenant), house.instance(tenant)
    house.request("DELETE", f"{tenant.path}/instances/{second}", tenant.key)
    house.settle()

    refused = house.request("DELETE", blue, tenant.key)
    is_problem(refused, 409, "conflict")
    assert refused.json()["detail"] == (
        "cannot delete a team that has projects: 1 (delete them, or move them to another team);"
        " instances: 1 running or paused (delete or erase them), 1 deleted with their data"
        " retained (erase them, or wait until purge_after)"
    )
    for instance in (first, second):
        house.post(f"{tenant.path}/instances/{instance}/actions/erase", tenant.key)
    house.settle()
    refused = house.request("DELETE", blue, tenant.key)
    is_problem(refused, 409, "conflict")
    assert refused.json()["detail"].endswith("move them to another team)")
    assert house.request("DELETE", project, tenant.key).status_code == 204
    shown = house.get(f"{tenant.path}/instances/{first}", tenant.key).json()
    assert (shown["status"], shown["team_id"]) == ("erased", id_of(blue))

    assert house.request("DELETE", blue, tenant.key).status_code == 204
    shown = house.get(f"{tenant.path}/instances/{first}", tenant.key).json()
    assert (shown["status"], shown["project_id"], shown["team_id"]) == ("erased", None, None)
    is_problem(house.get(f"{tenant.path}/instances/{first}", person.session), 403)
    with house.database.read() as db:
        assert db.query(teams.TeamMember).filter_by(user_id=person.id).count() == 0
    assert team(house, tenant, "Blue", slug="blue")


@pytest.mark.parametrize("plan", ["free", "solo"])
def test_small_plans_have_everyone_alone(house: House, plan: str) -> None:
    tenant = house.tenant(plan=plan)
    refused = house.post(f"{tenant.path}/teams", tenant.key, json={"name": "Blue"})
    is_problem(refused, 422)
    assert refused.json()["errors"][0]["keyword"] == "quota"
    assert refused.json()["detail"] == (
        f"the {plan} plan allows 1 team, Everyone included, and you have 1; change the plan to"
        " create more"
    )


@pytest.mark.every_database  # what locks is the database
def test_a_limit_of_teams_holds_for_many_at_once(
    house: House, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = replace(PLANS["team"], teams_max=4)
    monkeypatch.setattr("handlers.access.teams.PLANS", {"team": limited})
    asked: list[Any] = [
        ("POST", f"{tenant.path}/teams", tenant.key, {"json": {"name": "Blue"}}) for _ in range(20)
    ]
    answers = house.together(*asked)
    assert sorted(one.status_code for one in answers) == [201] * 3 + [422] * 17
    assert len(house.get(f"{tenant.path}/teams", tenant.key).json()["items"]) == 4


def test_another_organizations_team_is_none(house: House, tenant: Tenant) -> None:
    theirs = id_of(team(house, house.tenant()))
    for method, body in (("GET", None), ("PATCH", {"name": "X"}), ("DELETE", None)):
        options = {} if body is None else {"json": body}
        answer = house.request(method, f"{tenant.path}/teams/{theirs}", tenant.key, **options)
        is_problem(answer, 404, "not_found")
