"""Alerts: raised by what fails, counted, acknowledged, and resolved by what goes well again."""

from typing import Any

import pytest

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import NEVER, is_problem
from contract_tests.api.test_event_kinds import Act, archiving, copying, observed
from contract_tests.workflows.fake_backups import ARCHIVING, COPIES
from control.events import publish
from storage.access import teams
from storage.instances.instances import Instance

FAILED: dict[str, Any] = {"operation": "resize", "reason": "there is no room", "status": "running"}
BACKUP: dict[str, Any] = {"backup_id": f"bkp_{NEVER}", "kind": "manual"}


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


@pytest.fixture
def instance_id(house: House, tenant: Tenant) -> str:
    return house.instance(tenant)


def happens(house: House, instance_id: str, event: str, **data: Any) -> None:
    with house.database.write() as db:
        instance = db.get_one(Instance, instance_id)
        publish(db, instance.org_id, event, {"instance_id": instance_id, **data}, instance)


def listed(house: House, tenant: Tenant, **asked: Any) -> list[dict[str, Any]]:
    answer = house.request("GET", f"{tenant.path}/alerts", tenant.key, params=asked)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def acknowledge(house: House, tenant: Tenant, alert: dict[str, Any]) -> dict[str, Any]:
    answer = house.post(f"{tenant.path}/alerts/{alert['id']}/actions/acknowledge", tenant.key)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_what_fails_again_is_one_alert_with_the_last_reason(
    house: House, tenant: Tenant, instance_id: str
) -> None:
    happens(house, instance_id, "backup.failed.v1", **BACKUP, reason="the store did not respond")
    happens(house, instance_id, "backup.failed.v1", **BACKUP, reason="the store is full")
    (alert,) = listed(house, tenant)
    name = house.get(f"{tenant.path}/instances/{instance_id}", tenant.key).json()["name"]
    assert alert["title"] == f"a backup of {name} failed"
    assert (alert["kind"], alert["severity"]) == ("backup_failed", "critical")
    assert (alert["occurrences"], alert["reason"]) == (2, "the store is full")
    assert alert["last_at"] >= alert["created_at"]
    assert (alert["instance_id"], alert["resolved_at"]) == (instance_id, None)


def test_it_stays_as_severe_as_it_was(house: House, tenant: Tenant, instance_id: str) -> None:
    for status in ("running", "failed", "running"):
        happens(house, instance_id, "instance.failed.v1", **{**FAILED, "status": status})
    (alert,) = listed(house, tenant, min_severity="critical")
    assert (alert["severity"], alert["occurrences"]) == ("critical", 3)


def test_one_that_is_acknowledged_is_hidden_and_the_next_is_another(
    house: House, tenant: Tenant, instance_id: str
) -> None:
    happens(house, instance_id, "instance.failed.v1", **FAILED)
    (alert,) = listed(house, tenant, include_acknowledged=False)
    told = acknowledge(house, tenant, alert)
    assert (told["acknowledged"], told["acknowledged_by"]) == (True, tenant.key_id)
    assert acknowledge(house, tenant, alert) == told
    assert listed(house, tenant, include_acknowledged=False) == []
    assert listed(house, tenant) == [told]
    happens(house, instance_id, "instance.failed.v1", **FAILED)
    (second,) = listed(house, tenant, include_acknowledged=False)
    assert (second["occurrences"], second["acknowledged"]) == (1, False)
    assert [one["id"] for one in listed(house, tenant)] == [second["id"], alert["id"]]


def test_acknowledging_is_in_the_audit_log(house: House, tenant: Tenant, instance_id: str) -> None:
    happens(house, instance_id, "instance.failed.v1", **FAILED)
    (alert,) = listed(house, tenant)
    acknowledge(house, tenant, alert)
    path = f"{tenant.path}/audit?action=alert.acknowledge"
    (entry,) = house.get(path, tenant.key).json()["items"]
    assert entry["target"] == alert["id"]
    team_id = alert["team_id"]
    about = {"kind": "instance_failed", "team_id": team_id, "instance_id": instance_id}
    assert (entry["detail"], team_id) == (about, teams.everyone_of(tenant.org_id))


def test_what_goes_well_again_resolves_its_own_kind_alone(
    house: House, tenant: Tenant, instance_id: str
) -> None:
    other = house.instance(tenant)
    for each in (instance_id, other):
        happens(house, each, "instance.failed.v1", **FAILED)
        happens(house, each, "backup.failed.v1", **BACKUP, reason="the store is full")
    completed = {**BACKUP, "size_bytes": 1, "stored_bytes": 1, "verified_by": "restored"}
    happens(house, instance_id, "backup.completed.v1", **completed)
    unresolved = [one for one in listed(house, tenant) if one["resolved_at"] is None]
    assert {(one["instance_id"], one["kind"]) for one in unresolved} == {
        (instance_id, "instance_failed"),
        (other, "instance_failed"),
        (other, "backup_failed"),
    }
    happens(house, instance_id, "backup.failed.v1", **BACKUP, reason="again")
    assert len(listed(house, tenant)) == 5


def test_a_deleted_instance_has_none_open_and_an_erased_one_none(
    house: House, tenant: Tenant, instance_id: str
) -> None:
    happens(house, instance_id, "instance.failed.v1", **FAILED)
    house.request("DELETE", f"{tenant.path}/instances/{instance_id}", tenant.key)
    house.settle()
    (alert,) = listed(house, tenant)
    assert alert["resolved_at"] is not None
    owner = house.session(tenant.owner.id, mfa=True)
    house.post(f"{tenant.path}/instances/{instance_id}/actions/erase", owner, json={})
    house.settle()
    assert listed(house, tenant) == []


def test_what_is_asked_wrongly_is_said(house: House, tenant: Tenant) -> None:
    for asked in ("min_severity=fatal", "include_acknowledged=maybe", "limit=0"):
        answer = house.get(f"{tenant.path}/alerts?{asked}", tenant.key)
        is_problem(answer, 422)
        assert answer.json()["errors"][0]["parameter"] == asked.partition("=")[0]


def test_they_are_pages(house: House, tenant: Tenant) -> None:
    for _ in range(3):
        happens(house, house.instance(tenant), "instance.failed.v1", **FAILED)
    path = f"{tenant.path}/alerts?limit=2"
    first = house.get(path, tenant.key).json()
    second = house.get(f"{path}&cursor={first['next_cursor']}", tenant.key).json()
    assert [len(page["items"]) for page in (first, second)] == [2, 1]
    assert second["next_cursor"] is None


def test_many_at_once_are_acknowledged_by_one(
    house: House, tenant: Tenant, instance_id: str
) -> None:
    happens(house, instance_id, "instance.failed.v1", **FAILED)
    (alert,) = listed(house, tenant)
    path = f"{tenant.path}/alerts/{alert['id']}/actions/acknowledge"
    answers = house.together(*[("POST", path, tenant.key, {})] * 8)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["acknowledged_at"] for answer in answers}) == 1


@pytest.mark.parametrize(
    ("late", "off"),
    [
        (archiving(late=True), observed(archiving={**ARCHIVING, "wanted": False, "status": "off"})),
        (copying(late=True), observed(copies={**COPIES, "wanted": False, "status": "off"})),
    ],
    ids=["archiving", "copies"],
)
def test_what_is_turned_off_is_not_late_any_more(
    house: House, tenant: Tenant, instance_id: str, late: Act, off: Act
) -> None:
    late(house, tenant, instance_id)
    assert [one["resolved_at"] for one in listed(house, tenant)] == [None]
    off(house, tenant, instance_id)
    (alert,) = listed(house, tenant)
    assert alert["resolved_at"] is not None


def test_of_an_instance_that_is_gone_nothing_is_raised(
    house: House, tenant: Tenant, instance_id: str
) -> None:
    house.request("DELETE", f"{tenant.path}/instances/{instance_id}", tenant.key)
    happens(house, instance_id, "backup.failed.v1", **BACKUP, reason="it was deleted")
    assert listed(house, tenant) == []
