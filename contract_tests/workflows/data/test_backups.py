"""Backups as workers make them: killed, failing, overtaken by a delete, and lost."""

from typing import Any

import pytest

from contract_tests.workflows.data import stored
from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import LEASE_S, Killed, Stage
from contract_tests.workflows.test_three_ways import probe
from control.cells.client import CellFailed, CellRefused, CellUnavailable
from control.work import Operation
from control.workflows.data import backup_schedules
from control.workflows.data.backups import DEADLINE_S, FAILED_REST, create, drop, start
from storage.data import backup_settings, backups, restores
from storage.database import now
from storage.instances import changes, instances
from storage.instances.instances import Instance
from storage.work import Work

STEPS = ("begin", "copy", "record")


def requested(stage: Stage, instance: Instance, kind: str = "manual", **values: Any) -> str:
    with stage.database.write() as db:
        made = backups.request(db, instance, kind, **values)
        start(db, create, instance, backup_id=made.id)
        return made.id


def turn(stage: Stage, kind: str) -> None:
    with stage.database.write() as db:
        take_turn(db, kind)
    stage.settle()


def test_a_backup_is_made_while_the_instance_runs_on(stage: Stage) -> None:
    instance = stage.instance("running")
    backup_id = requested(stage, instance)
    stage.settle()
    made = stored.fetch(stage, instance, backup_id)
    assert (made.status, made.status_reason) == ("completed", None)
    assert made.verification is not None
    assert stage.cell.stored(instance.id) == [backup_id]
    assert stage.fetch(instance).status == "running"
    (told,) = stage.events(instance)
    assert (told.type, told.data["backup_id"]) == ("backup.completed.v1", backup_id)
    assert (told.data["kind"], told.data["verified_by"]) == ("manual", "restored")


@pytest.mark.parametrize("place", ["before", "inside", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_it_is_still_made_once(stage: Stage, step: str, place: str) -> None:
    pending = [(step, place)]

    def kill(name: str, where: str) -> None:
        if (name, where) in pending:
            pending.clear()
            raise Killed

    instance = stage.instance("running")
    backup_id = requested(stage, instance)
    with pytest.raises(Killed):
        stage.settle(probe(kill))
    stage.pass_time(LEASE_S + 1)
    stage.settle()
    assert stored.fetch(stage, instance, backup_id).status == "completed"
    assert stage.cell.effects(instance.id) == ["back_up"]
    assert stage.kinds_of_events(instance) == ["backup.completed.v1"]


def test_a_copy_that_lasts_holds_up_no_request(stage: Stage) -> None:
    instance = stage.instance("running")
    requested(stage, instance)
    with stage.database.write() as db:
        instances.fetch(db, stage.org_id, instance.id, lock=True).pause()
    stage.start("instances.pause", instance)
    begun: list[str] = []

    def note(action: str, _instance_id: str) -> None:
        begun.append(action)
        if action == "back_up" and "pause" not in begun:
            raise CellUnavailable("it is at another copy")

    stage.cell.before = note
    stage.settle()
    assert begun[:2] == ["back_up", "pause"]
    assert stage.fetch(instance).status == "paused"


def test_what_holds_it_up_is_told_and_what_ends_it_too(stage: Stage) -> None:
    instance = stage.instance("running")
    backup_id = requested(stage, instance)

    def unreachable(_action: str, _instance_id: str) -> None:
        raise CellUnavailable("the cell cannot be reached")

    stage.cell.before = unreachable
    stage.turn()
    held_up = stored.fetch(stage, instance, backup_id)
    assert (held_up.status, held_up.status_reason) == ("running", "the cell cannot be reached")
    stage.pass_time(DEADLINE_S + 60)
    stage.settle()
    failed = stored.fetch(stage, instance, backup_id)
    assert failed.status == "failed"
    assert str(failed.status_reason).endswith("the last error was: the cell cannot be reached")
    (told,) = stage.events(instance)
    assert (told.type, told.data["reason"]) == ("backup.failed.v1", failed.status_reason)
    assert stage.fetch(instance).status == "running"


def test_a_cell_that_fails_at_it_is_not_asked_for_hours(stage: Stage) -> None:
    instance = stage.instance("running")
    backup_id = requested(stage, instance)
    tries = []

    def fail(_action: str, _instance_id: str) -> None:
        tries.append(1)
        raise CellFailed("the store refused: no such bucket")

    stage.cell.before = fail
    stage.settle()
    failed = stored.fetch(stage, instance, backup_id)
    assert (failed.status, failed.status_reason) == ("failed", "the store refused: no such bucket")
    assert 3 < len(tries) < 15


def test_a_delete_that_comes_first_ends_it(stage: Stage) -> None:
    instance = stage.instance("running")
    backup_id = requested(stage, instance)
    stored.change(stage, instance, status="deleting", desired_status="deleted")
    stage.settle()
    failed = stored.fetch(stage, instance, backup_id)
    assert (failed.status, failed.status_reason) == ("failed", "the instance is deleting")


@pytest.mark.parametrize("done_by_then", [False, True])
def test_an_erase_takes_the_backups_and_what_is_known_of_them(
    stage: Stage, done_by_then: bool
) -> None:
    instance = stage.instance("running")
    requested(stage, instance)
    with stage.database.write() as db:
        settings = backup_settings.of_instance(db, instance)
        settings.change({"retention_days": 1}, None, now(db))
        db.add(settings)
    if done_by_then:
        stage.settle()
        stored.restore(*(stage, instance, stage.cell.stored(instance.id)[0], instance, "in_place"))
    with stage.database.write() as db:
        instances.fetch(db, stage.org_id, instance.id, lock=True).erase()
    stage.start("instances.erase", instance)
    stage.settle()
    assert stage.fetch(instance).status == "erased"
    assert stage.cell.stored(instance.id) == []
    with stage.database.read() as db:
        assert backups.page(db, instance, limit=9, after=None).items == []
        assert restores.page(db, instance, limit=9, after=None).items == []
        assert backup_settings.of_instance(db, instance).retention_days is None


def test_a_deleted_instance_keeps_its_backups_until_it_is_erased(stage: Stage) -> None:
    instance = stage.instance("deleting")
    with stage.database.write() as db:
        row = instances.fetch(db, stage.org_id, instance.id, lock=True)
        row.ready_at = now(db)
    old, new = (
        stored.backup(
            *(stage.database, stage.cell, instance, "scheduled"), age=30 * days * FAILED_REST
        )
        for days in (2, 1)
    )
    stage.start("instances.delete", instance)
    stage.settle()
    turn(stage, "backups.expire")
    assert stage.cell.stored(instance.id) == sorted([old, new])
    with stage.database.write() as db:
        row = instances.fetch(db, stage.org_id, instance.id, lock=True)
        assert row.status == "deleted"
        row.undelete(now(db))
    stage.start("instances.resume", instance)
    stage.settle()
    assert stage.fetch(instance).status == "running"
    turn(stage, "backups.expire")
    assert stage.cell.stored(instance.id) == [new]


def test_what_is_unwanted_is_dropped_100_at_a_time(stage: Stage) -> None:
    instance = stage.instance("running")
    made = [stored.backup(stage.database, stage.cell, instance) for _ in range(101)]
    kept = stored.backup(stage.database, stage.cell, instance)
    with stage.database.write() as db:
        for backup in backups.by_ids(db, instance, made):
            backup.delete()
        start(db, drop, instance)
    stage.settle()
    assert stage.cell.stored(instance.id) == [kept]
    assert stage.cell.effects(instance.id) == ["drop_backups", "drop_backups"]
    assert {stored.fetch(stage, instance, each).status for each in made} == {"deleted"}


def test_a_drop_that_the_cell_refuses_now_is_asked_for_again(stage: Stage) -> None:
    instance = stage.instance("running")
    backup_id = stored.backup(stage.database, stage.cell, instance)
    with stage.database.write() as db:
        backups.fetch(db, instance, backup_id, lock=True).delete()
        start(db, drop, instance)

    def refuse(_action: str, _instance_id: str) -> None:
        raise CellRefused("it is being restored")

    stage.cell.before = refuse
    stage.settle()
    assert stored.fetch(stage, instance, backup_id).status == "deleting"
    stage.cell.before = lambda _action, _instance_id: None
    turn(stage, "backups.expire")
    assert stored.fetch(stage, instance, backup_id).status == "deleted"
    assert stage.cell.stored(instance.id) == []


def test_what_a_failed_backup_may_have_left_is_dropped_later(stage: Stage) -> None:
    instance = stage.instance("running")
    backup_id = requested(stage, instance)

    def lose_the_answer(action: str, _instance_id: str) -> None:
        if action == "back_up":
            raise CellRefused("it was told that it failed")

    stage.cell.after = lose_the_answer
    stage.settle()
    assert stored.fetch(stage, instance, backup_id).status == "failed"
    turn(stage, "backups.expire")
    assert stage.cell.stored(instance.id) == [backup_id], "a cell may be at it"
    stage.pass_time(FAILED_REST.total_seconds() + 60)
    turn(stage, "backups.expire")
    assert stage.cell.stored(instance.id) == []
    assert stored.fetch(stage, instance, backup_id).status == "failed"


def test_no_change_is_made_without_the_backup_before_it(stage: Stage) -> None:
    instance = stage.instance("running")

    def fail(action: str, _instance_id: str) -> None:
        if action == "back_up":
            raise CellFailed("the store is full")

    stage.cell.before = fail
    with stage.database.write() as db:
        row = instances.fetch(db, stage.org_id, instance.id, lock=True)
        changes.order(db, row, {"size": "s0"}, requested_by=None, now=now(db))
    stage.start("instances.resize", instance)
    stage.settle()
    found = stage.fetch(instance)
    assert (found.status, found.size) == ("running", "f0")
    assert found.status_reason == "the change failed: the store is full"
    assert "resize" not in stage.cell.effects(instance.id)
    assert stage.kinds_of_events(instance) == ["backup.failed.v1", "instance.failed.v1"]


def test_work_that_was_lost_is_started_again(stage: Stage) -> None:
    instance = stage.instance("running")
    lost = requested(stage, instance)
    with stage.database.write() as db:
        before_change = backups.request(db, instance, "pre_change").id
        db.query(Work).delete()
    backup_schedules.restart_lost(stage.database)
    assert stage.open_work() == [], "it may be on its way"
    stage.pass_time(backup_schedules.LOST_AFTER.total_seconds() + 1)
    for _ in range(2):
        backup_schedules.restart_lost(stage.database)
    assert [work.kind for work in stage.open_work()] == ["backups.create"]
    stage.settle(Operation)
    assert stored.fetch(stage, instance, lost).status == "completed"
    assert stored.fetch(stage, instance, before_change).status == "failed"
