"""Backups over the API: made, listed, deleted, their quota, and the health of a month."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import NEVER, is_problem
from contract_tests.workflows.data import stored
from contract_tests.workflows.known import take_turn
from control.cells.client import CellRefused, CellUnavailable
from storage.access.teams import Team, TeamMember
from storage.data import backups
from storage.instances import instances
from storage.instances.instances import STATUSES


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant("Careful", plan="team")


def path(tenant: Tenant, instance_id: str, rest: str = "") -> str:
    return f"{tenant.path}/instances/{instance_id}/backups{rest}"


def made(house: House, tenant: Tenant, instance_id: str, **body: str) -> dict[str, Any]:
    """A manual backup that is completed."""
    asked = house.post(path(tenant, instance_id), tenant.key, json=body)
    assert asked.status_code == 201, asked.text
    house.settle()
    return dict(house.get(asked.headers["location"], tenant.key).json())


def of(house: House, tenant: Tenant, instance_id: str) -> instances.Instance:
    with house.database.read() as db:
        return instances.fetch(db, tenant.org_id, instance_id)


def test_a_backup_is_asked_for_and_made(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    body = {"label": "before the migration"}
    asked = house.post(path(tenant, instance_id), tenant.owner.session, json=body)
    assert asked.status_code == 201, asked.text
    pending = asked.json()
    assert asked.headers["location"] == path(tenant, instance_id, f"/{pending['id']}")
    assert (pending["kind"], pending["status"]) == ("manual", "pending")
    assert (pending["label"], pending["requested_by"]) == (body["label"], tenant.owner.id)
    assert (pending["started_at"], pending["verification"]) == (None, None)
    house.settle()
    found = house.get(asked.headers["location"], tenant.key).json()
    assert (found["status"], found["status_reason"]) == ("completed", None)
    assert found["verification"]["method"] == "restored"
    assert (found["size_bytes"], found["stored_bytes"]) == (4096, 1024)
    assert (found["engine"], found["engine_version"]) == ("duckdb", "1.5")
    assert found["expires_at"] is None, "who asked for it deletes it"
    assert house.get(path(tenant, instance_id), tenant.key).json()["items"] == [found]
    log = house.get(f"{tenant.path}/audit?action=backup.create", tenant.key).json()["items"]
    assert log[0]["target"] == pending["id"]
    assert log[0]["detail"] == {"instance": instance_id, **body}


def test_automatic_backups_say_when_they_expire(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    record = of(house, tenant, instance_id)
    stored.backup(house.database, house.cell, record, "scheduled", age=timedelta(days=2))
    settings = f"{tenant.path}/instances/{instance_id}/backup-settings"
    assert house.request("PATCH", settings, tenant.key, json={"retention_days": 5}).is_success
    (shown,) = house.get(path(tenant, instance_id), tenant.key).json()["items"]
    ends = datetime.fromisoformat(shown["completed_at"]) + timedelta(days=5)
    assert datetime.fromisoformat(shown["expires_at"]) == ends


def test_lists_are_filtered(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    manual = made(house, tenant, instance_id)
    scheduled = stored.backup(
        *(house.database, house.cell, of(house, tenant, instance_id), "scheduled")
    )
    for query, ids in (
        ("", [scheduled, manual["id"]]),
        ("?kind=manual", [manual["id"]]),
        ("?status=completed&limit=1", [scheduled]),
        ("?status=failed", []),
    ):
        listed = house.get(path(tenant, instance_id, query), tenant.key).json()
        assert [one["id"] for one in listed["items"]] == ids, query
    is_problem(house.get(path(tenant, instance_id, "?kind=other"), tenant.key), 422)


def test_how_far_it_is_comes_from_the_cell(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    asked = house.post(path(tenant, instance_id), tenant.key, json={}).json()
    one = path(tenant, instance_id, f"/{asked['id']}")
    told = {"backup_id": asked["id"], "phase": "verifying", "done_bytes": 1, "total_bytes": 4}
    house.cell.becomes(instance_id, backup=told)
    assert house.get(one, tenant.key).json()["progress"] is None, "it has not begun"
    with house.database.write() as db:
        record = instances.fetch(db, tenant.org_id, instance_id)
        backups.fetch(db, record, asked["id"], lock=True).begin()
    shown = house.get(one, tenant.key).json()
    assert shown["progress"] == {"phase": "verifying", "done_bytes": 1, "total_bytes": 4}
    house.cell.becomes(instance_id, backup={**told, "backup_id": f"bkp_{NEVER}"})
    assert house.get(one, tenant.key).json()["progress"] is None, "it is at another one"

    def silent(_instance_id: str) -> dict[str, Any] | None:
        raise CellUnavailable("it is silent")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(house.cell, "observe", silent)
        assert house.get(one, tenant.key).json()["progress"] is None
    house.settle()


@pytest.mark.parametrize("status", STATUSES)
def test_only_what_is_at_rest_is_backed_up(house: House, tenant: Tenant, status: str) -> None:
    instance_id = house.instance(tenant)
    with house.database.write() as db:
        record = instances.fetch(db, tenant.org_id, instance_id, lock=True)
        record.status = status
    asked = house.post(path(tenant, instance_id), tenant.key, json={})
    if status in {"running", "paused", "failed"}:
        assert asked.status_code == 201
    else:
        is_problem(asked, 409, "conflict")
        assert asked.json()["detail"] == f"cannot back up an instance that is {status}"


def test_one_manual_backup_of_an_instance_is_made_at_a_time(house: House, tenant: Tenant) -> None:
    instance_id, other = house.instance(tenant), house.instance(tenant)
    assert house.post(path(tenant, instance_id), tenant.key, json={}).status_code == 201
    is_problem(house.post(path(tenant, instance_id), tenant.key, json={}), 409)
    assert house.post(path(tenant, other), tenant.key, json={}).status_code == 201
    house.settle()
    assert house.post(path(tenant, instance_id), tenant.key, json={}).status_code == 201


def test_the_quota_of_manual_backups_holds_for_many_at_once(house: House) -> None:
    solo = house.tenant("Solo", plan="solo")
    many = [house.instance(solo) for _ in range(8)]
    asked = house.together(*(("POST", path(solo, each), solo.key, {"json": {}}) for each in many))
    codes = sorted(one.status_code for one in asked)
    assert codes == [201] * 5 + [422] * 3
    refused = next(one for one in asked if one.status_code == 422)
    assert refused.json()["errors"][0]["keyword"] == "quota"
    house.settle()
    taken = next(each for each, one in zip(many, asked, strict=True) if one.status_code == 201)
    backup = house.get(path(solo, taken), solo.key).json()["items"][0]
    one = path(solo, taken, f"/{backup['id']}")
    assert house.request("DELETE", one, solo.key).status_code == 202
    is_problem(house.post(path(solo, many[0]), solo.key, json={}), 422)
    house.settle()
    assert house.post(path(solo, many[0]), solo.key, json={}).status_code == 201


def test_a_manual_backup_is_refused_where_all_take_too_much(house: House) -> None:
    solo = house.tenant("Large", plan="solo")
    instance_id = house.instance(solo)
    made = house.post(path(solo, instance_id), solo.key, json={}).json()["id"]
    house.settle()
    with house.database.write() as db:
        instance = instances.fetch(db, solo.org_id, instance_id)
        backups.fetch(db, instance, made, lock=True).stored_bytes = 5 * 10**12
    refused = house.post(path(solo, instance_id), solo.key, json={})
    is_problem(refused, 422)
    assert "allows 5000 GB of backups" in refused.json()["detail"]
    other = house.tenant("Other", plan="solo")
    assert house.post(path(other, house.instance(other)), other.key, json={}).status_code == 201


def test_a_repeated_request_makes_one_backup(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    headers = {"Idempotency-Key": "once"}
    first, again = (
        house.post(path(tenant, instance_id), tenant.key, json={}, headers=headers)
        for _ in range(2)
    )
    assert first.json() == again.json()
    assert len(house.get(path(tenant, instance_id), tenant.key).json()["items"]) == 1


def test_a_manual_backup_is_deleted(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    backup = made(house, tenant, instance_id, label="old")
    one = path(tenant, instance_id, f"/{backup['id']}")
    deleted = house.request("DELETE", one, tenant.key)
    assert deleted.status_code == 202
    assert deleted.json()["status"] == "deleting"
    is_problem(house.request("DELETE", one, tenant.key), 409)
    house.settle()
    assert house.cell.stored(instance_id) == []
    assert house.get(one, tenant.key).json()["status"] == "deleted"
    assert house.get(path(tenant, instance_id), tenant.key).json()["items"] == []
    log = house.get(f"{tenant.path}/audit?action=backup.delete", tenant.key).json()["items"]
    assert [entry["target"] for entry in log] == [backup["id"]]


@pytest.mark.parametrize("kind", ["scheduled", "pre_change"])
def test_an_automatic_backup_is_not_deleted(house: House, tenant: Tenant, kind: str) -> None:
    instance_id = house.instance(tenant)
    backup_id = stored.backup(house.database, house.cell, of(house, tenant, instance_id), kind)
    refused = house.request("DELETE", path(tenant, instance_id, f"/{backup_id}"), tenant.key)
    is_problem(refused, 409, "conflict")
    assert "removed when its retention is over" in refused.json()["detail"]


def test_what_is_being_made_or_restored_is_not_deleted(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    asked = house.post(path(tenant, instance_id), tenant.key, json={}).json()
    one = path(tenant, instance_id, f"/{asked['id']}")
    is_problem(house.request("DELETE", one, tenant.key), 409)
    house.settle()
    assert house.post(f"{one}/actions/restore", tenant.key, json={}).status_code == 201
    refused = house.request("DELETE", one, tenant.key)
    is_problem(refused, 409)
    assert "being restored" in refused.json()["detail"]
    house.settle()
    assert house.request("DELETE", one, tenant.key).status_code == 202


def test_a_backup_of_another_instance_is_not_found(house: House, tenant: Tenant) -> None:
    first, second = house.instance(tenant), house.instance(tenant)
    backup = made(house, tenant, first)
    elsewhere = path(tenant, second, f"/{backup['id']}")
    is_problem(house.get(elsewhere, tenant.key), 404)
    is_problem(house.request("DELETE", elsewhere, tenant.key), 404)
    is_problem(house.post(f"{elsewhere}/actions/restore", tenant.key, json={}), 404)
    assert house.cell.stored(first) == [backup["id"]]


def test_why_a_backup_failed_is_shown_and_told(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)

    def refuse(action: str, _instance_id: str) -> None:
        if action == "back_up":
            raise CellRefused("the store has no space left")

    house.cell.before = refuse
    try:
        failed = made(house, tenant, instance_id)
    finally:
        house.cell.before = lambda _action, _instance_id: None
    assert (failed["status"], failed["status_reason"]) == ("failed", "the store has no space left")
    one = path(tenant, instance_id, f"/{failed['id']}")
    refused = house.post(f"{one}/actions/restore", tenant.key, json={})
    is_problem(refused, 409)
    assert refused.json()["detail"] == (
        "cannot restore a backup that is failed: the store has no space left"
    )
    instance = house.get(f"{tenant.path}/instances/{instance_id}", tenant.key).json()
    assert instance["status"] == "running"
    assert house.request("DELETE", one, tenant.key).status_code == 202


def health(house: House, tenant: Tenant, token: str | None = None, query: str = "") -> Any:
    return house.get(f"{tenant.path}/backups/health{query}", token or tenant.key)


def test_the_health_of_a_month(house: House, tenant: Tenant) -> None:
    assert health(house, tenant).json()["score"] is None
    instance_id = house.instance(tenant)
    made(house, tenant, instance_id)
    record, at = of(house, tenant, instance_id), house.now()
    for hours in range(3):
        slot = at.replace(day=1, hour=hours, minute=0)
        stored.backup(house.database, house.cell, record, "scheduled", slot=slot)
    with house.database.write() as db:
        slot = at.replace(day=1, hour=5, minute=0)
        backups.request(db, record, "scheduled", slot=slot).became_failed("why")
    found = health(house, tenant).json()
    assert found["month"] == f"{at:%Y-%m}"
    counted = {name: found[name] for name in ("expected", "completed", "failed", "verified")}
    assert counted == {"expected": 4, "completed": 3, "failed": 1, "verified": 3}
    assert found["score"] == 75
    assert found["oldest_restorable_at"] is not None
    before = health(house, tenant, query="?month=2026-01").json()
    assert (before["expected"], before["score"]) == (0, None)
    for wrong in ("2026-13", "26-01", "2026-1", "now"):
        is_problem(health(house, tenant, query=f"?month={wrong}"), 422)


@pytest.mark.parametrize(("plan", "status"), [("free", 403), ("solo", 403), ("enterprise", 200)])
def test_health_comes_with_the_team_plan(house: House, plan: str, status: int) -> None:
    tenant = house.tenant(plan, plan=plan)
    answer = health(house, tenant)
    assert answer.status_code == status
    if status == 403:
        is_problem(answer, 403, "plan_required")
        assert answer.json()["detail"] == (
            f"backup health needs the plan team or enterprise; this is the {plan} plan"
        )


def test_health_is_of_the_teams_that_one_may_see(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    made(house, tenant, instance_id)
    member = house.member(tenant.org_id, "member")
    assert health(house, tenant, member.session).json()["oldest_restorable_at"] is not None
    with house.database.write() as db:
        team = Team(id=f"team_{NEVER}{member.id[-4:]}", org_id=tenant.org_id, name="T", slug="t")
        db.add(team)
        db.flush()
        db.add(
            TeamMember(
                team_id=team.id, user_id=tenant.owner.id, org_id=tenant.org_id, role="viewer"
            )
        )
        instances.fetch(db, tenant.org_id, instance_id, lock=True).team_id = team.id
    assert health(house, tenant, member.session).json()["oldest_restorable_at"] is None
    is_problem(house.get(path(tenant, instance_id), member.session), 404)
    assert health(house, tenant).json()["oldest_restorable_at"] is not None


def test_a_schedule_backs_up_what_runs(house: House, tenant: Tenant) -> None:
    instance_id = house.instance(tenant)
    house.pass_time(2 * 86_400)
    with house.database.write() as db:
        take_turn(db, "backups.schedule")
    house.settle()
    (shown,) = house.get(path(tenant, instance_id), tenant.key).json()["items"]
    assert (shown["kind"], shown["status"], shown["requested_by"]) == (
        *("scheduled", "completed"),
        None,
    )
    kinds = house.get(
        f"{tenant.path}/events", tenant.key, headers={"Last-Event-ID": f"evt_{'0' * 26}"}
    )
    assert "backup.completed.v1" in kinds.text
