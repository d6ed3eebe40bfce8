"""Projects of teams: made for one, and moved to another with all that belongs to them."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from contract_tests.api.access.team_helpers import (
    everyone,
    in_team,
    last_audited,
    put,
    team,
)
from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.rows import NEVER, alerted, is_problem


@dataclass
class Firm:
    """An organization with two teams, each with somebody who leads it and is in no other."""

    house: House
    tenant: Tenant
    blue: str
    red: str
    of_blue: Person
    of_red: Person

    @property
    def project(self) -> str:
        return f"{self.tenant.path}/projects/{self.tenant.project_id}"

    def move(self, path: str, token: str | None = None) -> httpx.Response:
        body = {"team_id": path.rpartition("/")[2]}
        return self.house.request("PATCH", self.project, token or self.tenant.key, json=body)


@pytest.fixture
def firm(house: House) -> Firm:
    tenant = house.tenant()
    blue, red = team(house, tenant, "Blue"), team(house, tenant, "Red")
    leads = [in_team(house, tenant, path, "admin") for path in (blue, red)]
    return Firm(house, tenant, blue, red, *leads)


def seen(firm: Firm, instance_id: str, person: Person) -> dict[str, bool]:
    """What of the instance somebody is shown."""
    tenant, get = firm.tenant, firm.house.get
    path = f"{tenant.path}/instances/{instance_id}"
    listed: dict[str, Any] = {
        name: get(f"{tenant.path}/{name}", person.session).json().get("items", [])
        for name in ("instances", "alerts", "projects")
    }
    return {
        "instance": get(path, person.session).is_success,
        "project": get(firm.project, person.session).is_success,
        "events": "instance.ready.v1" in _events(firm, f"{path}/events", person),
        "events of all": instance_id in _events(firm, f"{tenant.path}/events", person),
        "instances": instance_id in [one["id"] for one in listed["instances"]],
        "alerts": instance_id in [one["instance_id"] for one in listed["alerts"]],
        "projects": tenant.project_id in [one["id"] for one in listed["projects"]],
    }


def _events(firm: Firm, path: str, person: Person) -> str:
    oldest = {"Last-Event-ID": f"evt_{'0' * 26}"}
    return firm.house.get(path, person.session, headers=oldest).text


def test_a_project_is_made_for_a_team(house: House, firm: Firm) -> None:
    path, blue_id = f"{firm.tenant.path}/projects", firm.blue.rpartition("/")[2]
    body = {"name": "Shop", "team_id": blue_id}
    made = house.post(path, firm.of_blue.session, json=body)
    assert made.status_code == 201
    assert made.json()["team_id"] == blue_id
    audited = last_audited(house, firm.tenant)
    detail = {"name": "Shop", "slug": "shop", "team_id": blue_id}
    assert audited == ("project.create", made.json()["id"], detail)
    assert house.get(made.headers["location"], firm.of_blue.session).json() == made.json()
    is_problem(house.get(made.headers["location"], firm.of_red.session), 404, "not_found")
    refused = house.post(path, firm.of_red.session, json=body)
    is_problem(refused, 403, "permission_missing")
    is_problem(house.post(path, firm.of_red.session, json={"name": "X"}), 403)
    own = house.post(path, firm.tenant.key, json={"name": "Own"}).json()
    assert own["team_id"] == everyone(firm.tenant).rpartition("/")[2]


def test_a_project_moves_with_its_instances_their_alerts_and_events(
    house: House, firm: Firm
) -> None:
    gone, kept = house.instance(firm.tenant), house.instance(firm.tenant)
    house.request("DELETE", f"{firm.tenant.path}/instances/{gone}", firm.tenant.key)
    house.settle()
    other = house.tenant()
    not_moved = house.instance(other)
    assert firm.move(firm.blue).status_code == 200
    alert_id = alerted(house, kept)
    assert set(seen(firm, kept, firm.of_blue).values()) == {True}
    assert set(seen(firm, kept, firm.of_red).values()) == {False}

    moved = firm.move(firm.red)
    red_id, blue_id = firm.red.rpartition("/")[2], firm.blue.rpartition("/")[2]
    assert moved.json()["team_id"] == red_id
    audited = last_audited(house, firm.tenant)
    moved_to = {"team_id": {"from": blue_id, "to": red_id}}
    detail = {"team_id": red_id, "changes": moved_to}
    assert audited == ("project.update", firm.tenant.project_id, detail)
    assert set(seen(firm, kept, firm.of_blue).values()) == {False}
    assert set(seen(firm, kept, firm.of_red).values()) == {True}
    for instance_id in (gone, kept):
        path = f"{firm.tenant.path}/instances/{instance_id}"
        is_problem(house.get(path, firm.of_blue.session), 404, "not_found")
        assert house.get(path, firm.of_red.session).json()["team_id"] == red_id
    path = f"{firm.tenant.path}/alerts/{alert_id}/actions/acknowledge"
    is_problem(house.post(path, firm.of_blue.session), 404, "not_found")
    assert house.post(path, firm.of_red.session).is_success
    shown = house.get(f"{other.path}/instances/{not_moved}", other.key).json()
    assert shown["team_id"] == everyone(other).rpartition("/")[2]


def test_what_is_made_after_the_move_is_of_the_new_team(house: House, firm: Firm) -> None:
    assert firm.move(firm.blue).status_code == 200
    instance_id = house.instance(firm.tenant)
    alerted(house, instance_id)
    assert set(seen(firm, instance_id, firm.of_blue).values()) == {True}
    assert set(seen(firm, instance_id, firm.of_red).values()) == {False}


def test_a_move_needs_the_permission_in_both_teams(house: House, firm: Firm) -> None:
    assert firm.move(firm.blue).status_code == 200
    # There, and not in the other; in the other, and not there.
    is_problem(firm.move(firm.red, firm.of_blue.session), 403, "permission_missing")
    is_problem(firm.move(firm.red, firm.of_red.session), 404, "not_found")
    for role in ("operator", "viewer"):
        put(house, firm.red, firm.tenant.key, firm.of_blue, role)
        is_problem(firm.move(firm.red, firm.of_blue.session), 403, "permission_missing")
    put(house, firm.blue, firm.tenant.key, firm.of_red, "operator")
    is_problem(firm.move(firm.red, firm.of_red.session), 403, "permission_missing")
    put(house, firm.red, firm.tenant.key, firm.of_blue, "admin")
    assert firm.move(firm.red, firm.of_blue.session).is_success
    key, _ = house.key(firm.tenant.org_id, firm.tenant.owner, "owner", scopes=["projects:read"])
    is_problem(firm.move(firm.blue, key), 403, "permission_missing")


def test_a_move_to_a_team_that_is_not_there_is_404(house: House, firm: Firm) -> None:
    theirs = team(house, house.tenant())
    before = house.get(firm.project, firm.tenant.key).json()
    for path in (theirs, f"team_{NEVER}", "never"):
        is_problem(firm.move(path), 404, "not_found")
        body = {"name": "X", "team_id": path.rpartition("/")[2]}
        made = house.post(f"{firm.tenant.path}/projects", firm.tenant.key, json=body)
        is_problem(made, 404, "not_found")
    assert house.get(firm.project, firm.tenant.key).json() == before


def test_a_project_that_stays_is_not_moved(house: House, firm: Firm) -> None:
    instance_id = house.instance(firm.tenant)
    path = f"{firm.tenant.path}/instances/{instance_id}"
    before = house.get(path, firm.tenant.key).json()
    assert firm.move(everyone(firm.tenant)).status_code == 200
    assert "team_id" not in last_audited(house, firm.tenant)[2]["changes"]
    assert house.get(path, firm.tenant.key).json() == before
