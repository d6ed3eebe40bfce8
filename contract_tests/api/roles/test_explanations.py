"""Why somebody can do something, or cannot: told as the boundary decides."""

from typing import Any

import pytest

from contract_tests.api.access.team_helpers import in_team, outsider, team
from contract_tests.api.harness import House, Tenant
from contract_tests.api.roles.role_helpers import assign, role
from contract_tests.api.rows import is_problem

Body = dict[str, Any]


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant(plan="team")


def explain(house: House, tenant: Tenant, user_id: str, operation: str, **of: str) -> Body:
    asked = {"user_id": user_id, "operation": operation, **of}
    answer = house.get(f"{tenant.path}/access/explain", tenant.key, params=asked)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_the_role_and_where_it_was_given_are_told(house: House, tenant: Tenant) -> None:
    blue, here = team(house, tenant), house.instance(tenant)
    team_id = blue.rpartition("/")[2]
    ada = in_team(house, tenant, blue, "operator")
    told = explain(house, tenant, ada.id, "instances.delete", team_id=team_id)
    assert told["allowed"] is True
    assert told["by"] == [
        {
            "source": "team_role", "role": "operator", "role_id": None,
            "team_id": team_id, "project_id": None,
        }
    ]  # fmt: skip
    assert told["explanation"] == (
        f"Allowed: instances:delete is held by the role operator in the team {team_id}."
    )
    told = explain(house, tenant, ada.id, "instances.delete", instance_id=here)
    assert (told["allowed"], told["by"]) == (False, [])
    assert told["explanation"].startswith("Not allowed here: they have instances:delete in a part")


def test_what_is_missing_and_what_is_asked_for_beside_is_told(house: House, tenant: Tenant) -> None:
    ada = outsider(house, tenant)
    told = explain(house, tenant, ada.id, "orgs.close")
    assert told["allowed"] is False
    assert told["permission"] == "org:close"
    assert told["needs"] == ["owner", "session", "second_factor"]
    assert "none of their roles has org:close" in told["explanation"]
    told = explain(house, tenant, tenant.owner.id, "orgs.close")
    assert told["allowed"] is True
    told = explain(house, tenant, ada.id, "sessions.list")
    assert (told["allowed"], told["permission"]) == (True, None)


def test_custom_roles_and_roles_in_projects_are_told_by_name(house: House, tenant: Tenant) -> None:
    ada, here = outsider(house, tenant), house.instance(tenant)
    path = role(house, tenant, "instances:delete", name="cleaner")
    assign(house, path, tenant.key, ada.id)
    member = f"{tenant.path}/projects/{tenant.project_id}/members/{ada.id}"
    house.request("PUT", member, tenant.key, json={"role": "developer"})
    told = explain(house, tenant, ada.id, "instances.delete", instance_id=here)
    assert {(one["source"], one["role"]) for one in told["by"]} == {
        ("custom_role", "cleaner"),
        ("project_role", "developer"),
    }
    assert explain(house, tenant, ada.id, "instances.delete")["by"][0]["role"] == "cleaner"


def test_what_is_told_is_what_the_boundary_decides(house: House, tenant: Tenant) -> None:
    here = house.instance(tenant)
    path = f"{tenant.path}/instances/{here}"
    acts = {
        "instances.get": ("GET", path),
        "network.get": ("GET", f"{path}/network"),
        "instances.pause": ("POST", f"{path}/actions/pause"),
    }
    people = [house.member(tenant.org_id, one) for one in ("admin", "member", "auditor")]
    for person in (*people, outsider(house, tenant)):
        for operation, (method, where) in acts.items():
            told = explain(house, tenant, person.id, operation, instance_id=here)
            answer = house.request(method, where, person.session)
            assert told["allowed"] is (answer.status_code not in (403, 404)), (operation, told)


def test_bad_questions_are_answered_precisely(house: House, tenant: Tenant) -> None:
    path, key = f"{tenant.path}/access/explain", tenant.key
    asked = {"user_id": tenant.owner.id, "operation": "instance.delete"}
    refused = house.get(path, key, params=asked)
    is_problem(refused, 422)
    (error,) = refused.json()["errors"]
    assert error["parameter"] == "operation"
    assert "did you mean instances.delete" in error["message"]
    stranger = house.person()
    asked = {"user_id": stranger.id, "operation": "instances.get"}
    is_problem(house.get(path, key, params=asked), 404)
    # What they cannot see themselves is not told of.
    hidden, here = outsider(house, tenant), house.instance(tenant)
    asked = {"user_id": tenant.owner.id, "operation": "instances.get", "instance_id": here}
    is_problem(house.get(path, hidden.session, params=asked), 404)
