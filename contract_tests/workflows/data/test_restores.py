"""Restores as workers make them: into new instances and in place, overtaken, failing and lost."""

import pytest

from contract_tests.workflows.data import stored
from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import Stage
from control.cells.client import CellFailed
from control.workflows.instances.reconcile import LOST_AFTER
from storage.instances import instances
from storage.instances.instances import Instance
from storage.work import Work


def in_place(stage: Stage) -> tuple[Instance, str, str]:
    """An instance whose restore has been started, the id of its backup and of the restore."""
    instance = stage.instance("restoring")
    backup_id = stored.backup(stage.database, stage.cell, instance)
    restore_id = stored.restore(stage, instance, backup_id, instance, "in_place")
    stage.start("restores.in_place", instance)
    return instance, backup_id, restore_id


def into_new(stage: Stage) -> tuple[Instance, Instance, str]:
    source, target = stage.instance("running"), stage.instance("requested")
    backup_id = stored.backup(stage.database, stage.cell, source)
    restore_id = stored.restore(stage, source, backup_id, target, "new_instance")
    stage.start("restores.new_instance", target)
    return source, target, restore_id


def test_in_place_the_present_data_is_backed_up_first(stage: Stage) -> None:
    instance, backup_id, restore_id = in_place(stage)
    stage.settle()
    done = stored.fetch_restore(stage, instance, restore_id)
    assert (done.status, done.status_reason) == ("completed", None)
    before = stored.fetch(stage, instance, str(done.pre_change_backup_id))
    assert (before.kind, before.status) == ("pre_change", "completed")
    # From before the backup until after the restore nobody can write what would be in neither.
    assert stage.cell.effects(instance.id) == ["pause", "back_up", "restore", "resume"]
    observed = stage.cell.observe(instance.id)
    assert observed is not None
    assert observed["restored_from"] == backup_id
    assert stage.kinds_of_events(instance) == ["backup.completed.v1", "restore.completed.v1"]


def test_a_new_instance_begins_with_the_backup(stage: Stage) -> None:
    source, target, restore_id = into_new(stage)
    stage.settle()
    done = stored.fetch_restore(stage, target, restore_id)
    assert done.status == "completed"
    told = stage.cell.told(target.id)
    assert told["source_backup"] == f"{source.id}/{done.backup_id}"
    assert told["source_snapshot"] is None
    assert stage.fetch(target).ready_at is not None
    assert stage.kinds_of_events(target) == ["instance.ready.v1", "restore.completed.v1"]
    assert stage.kinds_of_events(source) == []


@pytest.mark.parametrize("from_copy", [True, False])
def test_it_is_noted_whether_a_copy_was_read(stage: Stage, from_copy: bool) -> None:
    instance, backup_id, restore_id = in_place(stage)

    def read(asked: str, instance_id: str) -> None:
        if asked == "restore":
            told = {"backup_id": backup_id, "from_copy": from_copy}
            stage.cell.becomes(instance_id, restored=told)

    stage.cell.before = read
    stage.settle()
    assert stored.fetch_restore(stage, instance, restore_id).from_copy is from_copy
    # What is told of another backup says nothing of this one; nor does a cell that tells nothing.
    again = stored.restore(stage, instance, backup_id, instance, "in_place")
    stored.change(stage, instance, status="restoring")
    stage.cell.before = lambda *_: stage.cell.becomes(
        instance.id, restored={"backup_id": "bkp_other", "from_copy": True}
    )
    stage.start("restores.in_place", instance)
    stage.settle()
    assert stored.fetch_restore(stage, instance, again).from_copy is None


@pytest.mark.parametrize("action", ["back_up", "restore"])
def test_one_that_fails_in_place_leaves_the_former_data(stage: Stage, action: str) -> None:
    instance, _, restore_id = in_place(stage)

    def fail(asked: str, _instance_id: str) -> None:
        if asked == action:
            raise CellFailed("the store does not answer")

    stage.cell.before = fail
    stage.settle()
    failed = stored.fetch_restore(stage, instance, restore_id)
    assert (failed.status, failed.status_reason) == ("failed", "the store does not answer")
    found = stage.fetch(instance)
    assert (found.status, found.desired_status) == ("running", "running")
    assert found.status_reason == "the restore failed: the store does not answer"
    assert "restore" not in stage.cell.effects(instance.id)
    kinds = stage.kinds_of_events(instance)
    assert kinds[-1] == "instance.failed.v1"
    first = "backup.failed.v1" if action == "back_up" else "backup.completed.v1"
    assert kinds == [first, "instance.failed.v1"]


@pytest.mark.parametrize("after", ["begin", "protect", "back_up", "backed_up", "restore", "usable"])
def test_a_delete_meanwhile_ends_a_restore_in_place(stage: Stage, after: str) -> None:
    instance, _, restore_id = in_place(stage)
    _delete_after(stage, instance, after)
    ended = stored.fetch_restore(stage, instance, restore_id)
    assert (ended.status, ended.status_reason) == ("failed", "the instance is deleting")
    assert stage.fetch(instance).status == "deleted"
    assert "restore.completed.v1" not in stage.kinds_of_events(instance)


@pytest.mark.parametrize("after", ["begin", "put", "usable"])
def test_a_delete_meanwhile_ends_a_restore_into_a_new_instance(stage: Stage, after: str) -> None:
    source, target, restore_id = into_new(stage)
    _delete_after(stage, target, after)
    ended = stored.fetch_restore(stage, source, restore_id)
    assert (ended.status, ended.status_reason) == ("failed", "the instance is deleting")
    assert stage.fetch(target).status == "deleted"


def _delete_after(stage: Stage, instance: Instance, step: str) -> None:
    from contract_tests.workflows.test_three_ways import probe  # noqa: PLC0415 - of its tests

    def delete(name: str, place: str) -> None:
        if (name, place) == (step, "after") and stage.fetch(instance).status != "deleting":
            with stage.database.write() as db:
                instances.fetch(db, stage.org_id, instance.id, lock=True).delete(None)
            stage.start("instances.delete", instance)

    stage.settle(probe(delete))


def test_a_backup_that_was_erased_meanwhile_is_told(stage: Stage) -> None:
    source, target, _ = into_new(stage)
    with stage.database.write() as db:
        instances.fetch(db, stage.org_id, source.id, lock=True).erase()
        db.query(Work).delete()
    stage.start("instances.erase", source)
    stage.settle()
    stage.start("restores.new_instance", target)
    stage.settle()
    found = stage.fetch(target)
    assert found.status == "failed"
    assert found.status_reason == (
        "provisioning failed: the backup is gone: its instance was erased"
    )


@pytest.mark.parametrize("mode", ["in_place", "new_instance"])
def test_a_restore_whose_work_was_lost_goes_on(stage: Stage, mode: str) -> None:
    target = in_place(stage)[0] if mode == "in_place" else into_new(stage)[1]
    with stage.database.write() as db:
        db.query(Work).delete()
    stage.pass_time(LOST_AFTER.total_seconds() + 1)
    with stage.database.write() as db:
        take_turn(db, "reconcile")
    stage.settle()
    assert stage.fetch(target).status == "running"
    assert stage.kinds_of_events(target)[-1] == "restore.completed.v1"
