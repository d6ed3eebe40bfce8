"""What a backup builds on is kept as long as it is, by retention and by what is removed."""

from datetime import timedelta
from typing import Any

import pytest

from contract_tests.workflows.data import stored
from contract_tests.workflows.data.test_backup_schedules import LONG_AGO, choose, turn
from contract_tests.workflows.fake_cell import FakeCell
from contract_tests.workflows.stage import Stage
from control.policy.sizes import GB
from storage.access import organizations
from storage.data import backups
from storage.instances.instances import Instance


@pytest.fixture
def instance(stage: Stage) -> Instance:
    return stage.instance("running", ready_at=LONG_AGO)


def series(stage: Stage, instance: Instance, *ages: int, size_bytes: int = 1024) -> list[str]:
    """A full backup and increments that build on each other, of so many days ago."""
    made: list[str] = []
    for days in ages:
        age = timedelta(days=days)
        backup_id = stored.backup(stage.database, stage.cell, instance, "scheduled", age=age)
        with stage.database.write() as db:
            backup = backups.fetch(db, instance, backup_id, lock=True)
            backup.method = "incremental" if made else "full"
            backup.parent_id = made[-1] if made else None
            backup.stored_bytes = size_bytes
        made.append(backup_id)
    return made


def test_retention_keeps_what_a_kept_backup_builds_on(stage: Stage, instance: Instance) -> None:
    former = series(stage, instance, 9, 8)
    made = series(stage, instance, 6, 5, 4, 1)
    newest = series(stage, instance, 0)
    choose(stage, instance, retention_days=3)
    turn(stage, "backups.expire")
    assert stage.cell.stored(instance.id) == sorted([*made, *newest])
    for each in former:
        assert stored.fetch(stage, instance, each).status == "deleted"
    choose(stage, instance, retention_days=1)
    turn(stage, "backups.expire")
    assert stage.cell.stored(instance.id) == newest


def test_what_the_plan_leaves_no_room_for_goes_with_what_builds_on_it(
    stage: Stage, instance: Instance
) -> None:
    with stage.database.write() as db:
        organizations.fetch(db, stage.org_id).plan = "free"
    former = series(stage, instance, 2, 1, size_bytes=5 * GB)
    made = series(stage, instance, 0, size_bytes=GB)
    turn(stage, "backups.expire")
    assert stage.cell.stored(instance.id) == sorted([former[0], *made])
    with stage.database.write() as db:
        backups.fetch(db, instance, made[0], lock=True).stored_bytes = 9 * GB
    turn(stage, "backups.expire")
    assert stage.cell.stored(instance.id) == made


@pytest.mark.nightly
def test_what_its_cell_keeps_for_others_is_not_taken_for_gone(
    stage: Stage, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what builds on it only the cell knows, as the records are older."""
    first, second, _ = (series(stage, instance, days)[0] for days in (9, 8, 0))
    drop = FakeCell.drop_backups

    def without_first(cell: FakeCell, instance_id: str, ids: list[str], **stamp: Any) -> Any:
        left = [each for each in ids if each != first]
        return {**drop(cell, instance_id, left, **stamp), "dropped": left}

    monkeypatch.setattr(FakeCell, "drop_backups", without_first)
    choose(stage, instance, retention_days=1)
    turn(stage, "backups.expire")
    assert stored.fetch(stage, instance, first).status == "deleting"
    assert stored.fetch(stage, instance, second).status == "deleted"
    monkeypatch.undo()
    turn(stage, "backups.expire")
    assert stored.fetch(stage, instance, first).status == "deleted"
