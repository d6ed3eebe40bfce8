"""Alerts about an organization: who sees them, and what raises those about its security."""

from typing import Any

import pytest

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from contract_tests.workflows.known import take_turn
from control.events import raise_
from storage.access import organizations, teams
from storage.catalogue import cells
from storage.instances.instances import Instance

Alert = dict[str, Any]


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


def raised(house: House, tenant: Tenant, kind: str = "owner_added", cause: str = "usr_1") -> None:
    with house.database.write() as db:
        org = organizations.fetch(db, tenant.org_id)
        raise_(db, org, kind, "warning", "{name} has a new owner", "so it is", cause=cause)


def listed(house: House, tenant: Tenant, token: str = "", **asked: Any) -> list[Alert]:
    answer = house.request("GET", f"{tenant.path}/alerts", token or tenant.key, params=asked)
    assert answer.status_code == 200, answer.text
    found: list[Alert] = answer.json()["items"]
    return found


def test_it_has_neither_a_team_nor_an_instance(house: House, tenant: Tenant) -> None:
    raised(house, tenant)
    (alert,) = listed(house, tenant)
    assert (alert["team_id"], alert["instance_id"]) == (None, None)
    assert alert["title"] == "Org has a new owner"


def test_only_who_sees_every_team_sees_it(house: House, tenant: Tenant) -> None:
    raised(house, tenant)
    (alert,) = listed(house, tenant)
    act = f"{tenant.path}/alerts/{alert['id']}/actions/acknowledge"
    for role in ("developer", "member"):
        person = house.member(tenant.org_id, role)
        assert listed(house, tenant, person.session) == []
        is_problem(house.post(act, person.session), 404)
    auditor = house.member(tenant.org_id, "auditor")
    assert listed(house, tenant, auditor.session) == [alert]
    # They may see it and not change it.
    is_problem(house.post(act, auditor.session), 403)
    admin = house.member(tenant.org_id, "admin")
    assert listed(house, tenant, admin.session) == [alert]
    assert house.post(act, admin.session).status_code == 200
    stranger = house.tenant()
    is_problem(house.post(act.replace(tenant.org_id, stranger.org_id), stranger.key), 404)


def test_several_causes_are_several_alerts(house: House, tenant: Tenant) -> None:
    for cause in ("usr_1", "usr_2", "usr_1"):
        raised(house, tenant, cause=cause)
    assert sorted(one["occurrences"] for one in listed(house, tenant)) == [1, 2]


def test_lists_are_filtered(house: House, tenant: Tenant) -> None:
    raised(house, tenant)
    ids = [house.instance(tenant) for _ in range(2)]
    with house.database.write() as db:
        for each in ids:
            instance = db.get_one(Instance, each)
            raise_(db, instance, "instance_failed", "critical", "{name} has failed", "so it is")
    assert len(listed(house, tenant)) == 3
    (alert,) = listed(house, tenant, instance_id=ids[0])
    assert alert["instance_id"] == ids[0]
    assert [one["kind"] for one in listed(house, tenant, kind="owner_added")] == ["owner_added"]
    assert listed(house, tenant, kind="owner_added", instance_id=ids[0]) == []
    house.request("DELETE", f"{tenant.path}/instances/{ids[0]}", tenant.key)
    house.settle()
    assert len(listed(house, tenant, include_resolved=False)) == 2
    for wrong in ({"kind": "Not a kind"}, {"kind": "x'; --"}, {"include_resolved": "perhaps"}):
        answer = house.request("GET", f"{tenant.path}/alerts", tenant.key, params=wrong)
        is_problem(answer, 422)


def test_a_new_owner_is_told_of_and_another_role_is_not(house: House, tenant: Tenant) -> None:
    person = house.member(tenant.org_id, "member")
    path = f"{tenant.path}/members/{person.id}"
    for role, count in (("developer", 0), ("owner", 1), ("owner", 1), ("member", 1)):
        answer = house.request("PATCH", path, tenant.key, json={"role": role})
        assert answer.status_code == 200, answer.text
        assert len(listed(house, tenant)) == count
    (alert,) = listed(house, tenant)
    assert (alert["kind"], alert["severity"]) == ("owner_added", "warning")
    assert alert["title"] == f"{person.email} is an owner of Org now"
    assert alert["occurrences"] == 1


def test_the_cell_of_a_team_is_told_to_who_sees_the_team(house: House, tenant: Tenant) -> None:
    house.instance(tenant)
    with house.database.write() as db:
        cell = cells.every(db)[0]
        cell.last_seen_at, before = None, cell.last_seen_at
        cell.expected_at = before
    house.pass_time(400)
    with house.database.write() as db:
        take_turn(db, "alerts.evaluate")
    house.settle()
    member = house.member(tenant.org_id, "member")
    (alert,) = listed(house, tenant, member.session, kind="instances_unreachable")
    assert (alert["team_id"], alert["instance_id"]) == (teams.everyone_of(tenant.org_id), None)
