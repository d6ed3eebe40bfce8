"""Instances whose data was lost are brought back from the store, or it is said why they are not."""

from datetime import timedelta

import pytest

from contract_tests.workflows.data import stored
from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import Stage
from control.cells.client import CellFailed, CellUnavailable
from control.workflows.data.recovery import LOOK_AGAIN
from control.workflows.instances.reconcile import LOST_AFTER
from storage import identifiers
from storage.data import backups, restores
from storage.database import now
from storage.instances import instances
from storage.instances.instances import Instance
from storage.work import Work

DAY = "2026-11-25T02:00"
TOLD = ["instance.credentials.rotated.v1"] * 2 + ["restore.completed.v1"]


def lost(stage: Stage, status: str = "running", **values: object) -> Instance:
    """An instance that had data, of which nothing is left."""
    instance = stage.instance(status)
    with stage.database.read() as db:
        moment = now(db)
    stored.change(stage, instance, ready_at=moment, **values)
    observed = "paused" if status == "paused" else "failed"
    stage.cell.becomes(
        instance.id,
        status=observed,
        data_lost=True,
        credentials={"generation": 2, "overlap_until": None},
    )
    return instance


def reconciled(stage: Stage, instance: Instance) -> Instance:
    with stage.database.write() as db:
        take_turn(db, "reconcile")
    stage.settle()
    return stage.fetch(instance)


@pytest.mark.parametrize("status", ["running", "failed"])
def test_it_runs_again_with_its_newest_backup_and_a_new_credential(
    stage: Stage, status: str
) -> None:
    instance = lost(stage, status)
    stored.backup(stage.database, stage.cell, instance, age=timedelta(days=1))
    newest = stored.backup(stage.database, stage.cell, instance)
    found = reconciled(stage, instance)
    assert (found.status, found.status_reason) == ("running", None)
    assert found.credentials_generation == 2
    assert stage.cell.told(instance.id)["source_backup"] == f"{instance.id}/{newest}"
    assert stage.kinds_of_events(instance) == TOLD
    with stage.database.read() as db:
        (restore,) = restores.page(db, instance, limit=5, after=None).items
    assert (restore.status, restore.backup_id, restore.requested_by) == ("completed", newest, None)


@pytest.mark.parametrize(("paused_by", "after"), [("user", "paused"), ("idle", "running")])
def test_one_that_was_paused_has_its_data_again(stage: Stage, paused_by: str, after: str) -> None:
    instance = lost(stage, "paused", paused_by=paused_by)
    stored.backup(stage.database, stage.cell, instance)
    assert reconciled(stage, instance).status == after
    observed = stage.cell.observe(instance.id)
    assert observed is not None
    assert (observed["status"], observed["data_lost"]) == (after, False)


def test_backups_that_only_the_store_knows_of_count(stage: Stage) -> None:
    """The database is older than they are: one was being made, one had not been begun."""
    instance = lost(stage)
    stored.backup(stage.database, stage.cell, instance, age=timedelta(days=1))
    with stage.database.write() as db:
        moment = now(db)
        pending = backups.request(db, instance, "scheduled").id
    stage.cell.holds(instance.id, pending, "scheduled", moment - timedelta(hours=1))
    unknown = identifiers.new("bkp_")
    stage.cell.holds(instance.id, unknown, "manual", moment)
    found = reconciled(stage, instance)
    assert found.status == "running"
    assert stage.cell.told(instance.id)["source_backup"] == f"{instance.id}/{unknown}"
    assert stored.fetch(stage, instance, pending).status == "completed"
    made = stored.fetch(stage, instance, unknown)
    assert (made.status, made.kind, made.org_id) == ("completed", "manual", stage.org_id)


def test_a_cell_that_does_not_know_the_instance_is_given_it_again(stage: Stage) -> None:
    instance = lost(stage)
    stored.backup(stage.database, stage.cell, instance)
    stage.cell.forget(instance.id)
    assert reconciled(stage, instance).status == "running"
    assert stage.kinds_of_events(instance) == TOLD


def test_one_without_a_backup_is_told_of_once_and_looked_for_again(stage: Stage) -> None:
    instance = lost(stage)
    for _ in range(2):
        found = reconciled(stage, instance)
        assert found.status == "failed"
        assert str(found.status_reason).startswith(
            "the data was lost with its machine: there is no backup of it in the store"
        )
    assert stage.cell.effects(instance.id) == ["take_over_backups"]
    stage.pass_time(LOOK_AGAIN.total_seconds() + 1)
    assert reconciled(stage, instance).status == "failed"
    assert stage.cell.effects(instance.id) == ["take_over_backups"] * 2
    # It was another store, which has been put right.
    stored.backup(stage.database, stage.cell, instance)
    stage.pass_time(LOOK_AGAIN.total_seconds() + 1)
    assert reconciled(stage, instance).status == "running"
    assert stage.kinds_of_events(instance) == [
        *("instance.failed.v1", "instance.credentials.rotated.v1"),
        *("instance.credentials.rotated.v1", "restore.completed.v1"),
    ]


def test_a_store_that_is_away_is_waited_for_and_told(stage: Stage) -> None:
    instance = lost(stage)
    stored.backup(stage.database, stage.cell, instance)
    seen: list[tuple[str, str | None]] = []

    def refuse(action: str, _instance_id: str) -> None:
        if action == "take_over_backups" and len(seen) < 3:
            found = stage.fetch(instance)
            seen.append((found.status, found.status_reason))
            raise CellUnavailable("the store of backups does not respond as it should")

    stage.cell.before = refuse
    assert reconciled(stage, instance).status == "running"
    assert seen[0] == (
        "restoring",
        "the data was lost with its machine; looking for its newest backup",
    )
    assert seen[1] == ("restoring", "the store of backups does not respond as it should")


def test_a_backup_that_cannot_be_restored_is_told(stage: Stage) -> None:
    instance = lost(stage)
    stored.backup(stage.database, stage.cell, instance)

    def fail(action: str, _instance_id: str) -> None:
        if action == "put":
            raise CellFailed("part 3 of the backup is missing")

    stage.cell.before = fail
    found = reconciled(stage, instance)
    assert (found.status, found.status_reason) == (
        "failed",
        "the data was lost with its machine: part 3 of the backup is missing",
    )
    with stage.database.read() as db:
        assert restores.into(db, instance, "in_place") is None


def test_a_deleted_one_stays_deleted(stage: Stage) -> None:
    instance = lost(stage, "deleted")
    assert reconciled(stage, instance).status == "deleted"
    assert stage.cell.effects(instance.id) == []


def test_work_that_was_lost_goes_on(stage: Stage) -> None:
    instance = lost(stage)
    stored.backup(stage.database, stage.cell, instance)
    with stage.database.write() as db:
        instances.fetch(db, stage.org_id, instance.id, lock=True).recover("lost")
        db.query(Work).delete()
    stage.pass_time(LOST_AFTER.total_seconds() + 1)
    assert reconciled(stage, instance).status == "running"


def test_a_cell_that_tells_of_anothers_backup_moves_nothing(stage: Stage) -> None:
    """It is trusted less than the control plane: what it lists are ids that it may have made up."""
    other, instance = stage.instance("running"), lost(stage)
    theirs = stored.backup(stage.database, stage.cell, other)
    told = stage.cell.holds(instance.id, identifiers.new("bkp_"), "manual", stored.moment(DAY))

    def lie(instance_id: str, known: list[str], *, key: str, lease: int) -> dict[str, object]:
        return {"items": [{**told, "backup_id": theirs}]}

    stage.cell.take_over_backups = lie  # type: ignore[method-assign]
    found = reconciled(stage, instance)
    assert (found.status, found.status_reason) == (
        "failed",
        "the data was lost with its machine: the cell lists a backup that is another instance's",
    )
    assert stored.fetch(stage, other, theirs).instance_id == other.id
    with stage.database.read() as db:
        assert backups.completed(db, found) == []
