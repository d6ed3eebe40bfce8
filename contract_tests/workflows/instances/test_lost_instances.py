"""What a cell has lost comes back with its newest backup, and says so; never empty."""

from datetime import timedelta

import pytest

from contract_tests.workflows.data import stored
from contract_tests.workflows.stage import Stage
from control.workflows.instances.resuming import NONE
from storage.data import backups

DAY = timedelta(days=1)


@pytest.mark.parametrize("wanted", ["running", "paused"])
def test_it_comes_back_with_the_newest_backup(stage: Stage, wanted: str) -> None:
    instance = stage.instance("resuming", desired_status=wanted, credentials_generation=4)
    ids = [stored.backup(stage.database, stage.cell, instance, age=age) for age in (2 * DAY, DAY)]
    other = stored.backup(stage.database, stage.cell, instance)
    with stage.database.write() as db:
        row = backups.fetch(db, instance, other, lock=True)
        # Of another version, as before an upgrade that was taken back.
        row.engine_version = "1.4"
    stage.cell.forget(instance.id)
    stage.start("instances.resume", instance)
    stage.settle()
    found = stage.fetch(instance)
    assert found.status == wanted
    assert f"from the backup {ids[1]}" in (found.status_reason or "")
    assert found.credentials_generation == 1
    told = stage.cell.told(instance.id)
    assert told["source_backup"] == f"{instance.id}/{ids[1]}"
    assert stage.kinds_of_events(instance)[-1] == (
        "instance.resumed.v1" if wanted == "running" else "instance.paused.v1"
    )


def test_one_that_was_deleted_when_its_machine_was_lost_comes_back_too(stage: Stage) -> None:
    """Its cell knows of it, and has nothing of it."""
    instance = stage.instance("resuming", desired_status="running")
    backup_id = stored.backup(stage.database, stage.cell, instance)
    stage.cell.becomes(instance.id, status="stopped", data_lost=True)
    stage.start("instances.resume", instance)
    stage.settle()
    found = stage.fetch(instance)
    assert found.status == "running"
    assert f"from the backup {backup_id}" in (found.status_reason or "")
    assert stage.cell.told(instance.id)["source_backup"] == f"{instance.id}/{backup_id}"


def test_without_a_backup_it_does_not_come_back_empty(stage: Stage) -> None:
    instance = stage.instance("resuming")
    stage.cell.forget(instance.id)
    stage.start("instances.resume", instance)
    stage.settle()
    found = stage.fetch(instance)
    assert (found.status, found.status_reason) == ("paused", f"resuming failed: {NONE}")
    assert stage.cell.observe(instance.id) is None


def test_what_the_cell_erased_is_gone_with_its_backups(stage: Stage) -> None:
    instance = stage.instance("resuming")
    stored.backup(stage.database, stage.cell, instance)
    stage.cell.becomes(instance.id, status="erased")
    stage.start("instances.resume", instance)
    stage.settle()
    found = stage.fetch(instance)
    assert found.status == "paused"
    assert "the cell no longer has the instance" in (found.status_reason or "")


def test_what_the_cell_has_keeps_its_own_data(stage: Stage) -> None:
    instance = stage.instance("resuming")
    stored.backup(stage.database, stage.cell, instance)
    stage.start("instances.resume", instance)
    stage.settle()
    assert stage.fetch(instance).status == "running"
    assert stage.cell.told(instance.id)["source_backup"] is None
