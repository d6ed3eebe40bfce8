"""One cause is one alert: a cell that does not respond, an instance that failed."""

import threading
from typing import Any

import pytest

from contract_tests.workflows.events.alerted import (
    alerts,
    look,
    measured,
    plan,
    seen,
    silent_for,
    told,
)
from contract_tests.workflows.known import enqueue
from contract_tests.workflows.stage import Stage
from control.events import publish
from storage.access import organizations, projects, teams
from storage.catalogue import cells
from storage.database import now
from storage.events.alerts import Alert
from storage.instances.instances import Instance

RAISED, RESOLVED = "alert.raised.v1", "alert.resolved.v1"
GB = 10**9


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """Of an organization without quotas."""
    plan(stage, "enterprise")
    return stage


def test_a_cell_that_is_lost_with_twenty_instances_is_one_alert_for_each_team(
    stage: Stage,
) -> None:
    with stage.database.write() as db:
        blue = teams.create(db, stage.org_id, {"name": "Blue", "slug": "blue"}).id
        other = organizations.create(db, name="Other", slug="other", plan="enterprise").id
        project = projects.create(db, other, name="Project", slug="p").id
    for number in range(20):
        stage.instance("running", **({"team_id": blue} if number < 5 else {}))
    elsewhere = stage.instance("running")
    with stage.database.write() as db:
        moved = db.get_one(Instance, elsewhere.id)
        moved.org_id, moved.project_id = other, project
        moved.team_id = teams.everyone_of(other)
    stage.instance("deleted", desired_status="deleted")
    silent_for(stage, 400)
    for _ in range(3):
        look(stage)
    found = {one.team_id: one for one in alerts(stage)}
    everyone = teams.everyone_of(stage.org_id)
    assert set(found) == {blue, everyone, teams.everyone_of(other)}
    assert len(alerts(stage)) == 3
    assert seen(stage) == [("instances_unreachable", "critical", 1, False)] * 3
    assert found[blue].title == "the cell of 5 instances of the team Blue does not respond"
    assert found[everyone].title.startswith("the cell of 15 instances of the team Everyone")
    assert "cell_fake" not in found[blue].reason + found[blue].title
    assert told(stage) == [(RAISED, "instances_unreachable", "critical")] * 3
    silent_for(stage, 10)
    look(stage)
    assert seen(stage) == [("instances_unreachable", "critical", 1, True)] * 3
    assert told(stage).count((RESOLVED, "instances_unreachable", "critical")) == 3


def test_a_silent_cell_becomes_critical_and_does_not_come_and_go(stage: Stage) -> None:
    stage.instance("running")
    one = "instances_unreachable"
    for seconds, severity, times in (
        (90, None, 0),
        (119, None, 0),
        (121, "warning", 1),
        (200, "warning", 1),
        (90, "warning", 1),
        (301, "critical", 2),
        (130, "critical", 2),
        (70, "critical", 2),
        # It is to start, and has not been heard of yet.
        (None, "critical", 2),
    ):
        silent_for(stage, seconds)
        look(stage)
        assert seen(stage) == ([(one, severity, times, False)] if severity else [])
    assert told(stage) == [(RAISED, one, "warning"), (RAISED, one, "critical")]
    silent_for(stage, 20)
    look(stage)
    assert seen(stage) == [(one, "critical", 2, True)]


def test_a_cell_that_never_comes_back_after_a_start_is_told_of(stage: Stage) -> None:
    stage.instance("running")
    silent_for(stage, None)
    look(stage)
    assert seen(stage) == []
    stage.pass_time(400)
    look(stage)
    assert seen(stage) == [("instances_unreachable", "critical", 1, False)]


def test_two_lost_cells_are_two_alerts(stage: Stage) -> None:
    places = {"url": "http+unix:///n", "public_url": "https://c", "instance_domain": "localhost"}
    with stage.database.write() as db:
        cells.register(db, "cell_two", region="local", **places)
    stage.instance("running")
    elsewhere = stage.instance("running")
    with stage.database.write() as db:
        db.get_one(Instance, elsewhere.id).cell_id = "cell_two"
    silent_for(stage, 400)
    silent_for(stage, 400, "cell_two")
    look(stage)
    assert len(alerts(stage)) == 2
    silent_for(stage, 1, "cell_two")
    look(stage)
    assert [one.resolved_at is None for one in alerts(stage)] == [True, False]


def fails(stage: Stage, instance: Instance, event: str, **data: Any) -> None:
    with stage.database.write() as db:
        held = db.get_one(Instance, instance.id)
        publish(db, held.org_id, event, {"instance_id": held.id, **data}, held)


BACKUP: dict[str, Any] = {
    "backup_id": "bkp_01JD7QK3V8Y2M4N6P8R0S2T4V6",
    "kind": "scheduled",
    "reason": "the cell did not respond",
}


def test_what_a_lost_cell_explains_raises_no_other_alert(stage: Stage) -> None:
    instances = [stage.instance("running") for _ in range(3)]
    silent_for(stage, 400)
    look(stage)
    for each in instances:
        fails(stage, each, "backup.failed.v1", **BACKUP)
    assert seen(stage) == [("instances_unreachable", "critical", 4, False)]
    # What is critical by itself is told in any case.
    lost = {"restorable_until": None, "reason": "it was lost", "is_lost": True}
    fails(stage, instances[0], "backup.archiving_interrupted.v1", **lost)
    assert ("backup_archiving_interrupted", "critical", 1, False) in seen(stage)
    silent_for(stage, 1)
    look(stage)
    fails(stage, instances[0], "backup.failed.v1", **BACKUP)
    assert ("backup_failed", "warning", 1, False) in seen(stage)


def test_a_failed_instance_explains_its_own_alerts_and_no_others(stage: Stage) -> None:
    failed, other = stage.instance("running"), stage.instance("running")
    data = {"operation": "run", "reason": "it crashed", "status": "failed"}
    fails(stage, failed, "instance.failed.v1", **data)
    for each in (failed, other):
        fails(stage, each, "backup.failed.v1", **BACKUP)
    assert seen(stage) == [
        ("instance_failed", "critical", 2, False),
        ("backup_failed", "warning", 1, False),
    ]


def test_one_that_runs_on_explains_nothing(stage: Stage) -> None:
    instance = stage.instance("running")
    data = {"operation": "resize", "reason": "no room", "status": "running"}
    fails(stage, instance, "instance.failed.v1", **data)
    fails(stage, instance, "backup.failed.v1", **BACKUP)
    assert [kind for kind, *_ in seen(stage)] == ["instance_failed", "backup_failed"]


def test_the_second_failed_backup_in_a_row_is_critical_also_if_the_first_was_acknowledged(
    stage: Stage,
) -> None:
    instance = stage.instance("running")
    fails(stage, instance, "backup.failed.v1", **BACKUP)
    with stage.database.write() as db:
        db.get_one(Alert, alerts(stage)[0].id).acknowledge("usr_1", now(db))
    fails(stage, instance, "backup.failed.v1", **BACKUP)
    assert [severity for _, severity, _, _ in seen(stage)] == ["warning", "critical"]
    completed = {"kind": "manual", "size_bytes": 1, "stored_bytes": 1, "verified_by": "restored"}
    backup_id = BACKUP["backup_id"]
    fails(stage, instance, "backup.completed.v1", **completed, backup_id=backup_id)
    fails(stage, instance, "backup.failed.v1", **BACKUP)
    assert seen(stage)[-1] == ("backup_failed", "warning", 1, False)


def test_two_workers_raise_one_alert(stage: Stage) -> None:
    instances = [stage.instance("running") for _ in range(4)]
    for each in instances:
        measured(stage, each, 0, storage_bytes=97 * GB // 100)
    with stage.database.write() as db:
        for lane in ("one", "two"):
            enqueue(db, "alerts.forecast", lane)
    begin = threading.Barrier(2)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            begin.wait(10)
            while stage.turn():
                pass
        except BaseException as error:  # noqa: BLE001 -- told by the test
            failed.append(error)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for each_worker in workers:
        each_worker.start()
    for each_worker in workers:
        each_worker.join(60)
    assert failed == []
    assert seen(stage) == [("storage_filling", "critical", 1, False)] * 4
    assert len(told(stage)) == 4
