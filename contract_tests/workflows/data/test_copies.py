"""Copies of backups by the clock: cells are told, what they tell is noted, events tell."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from contract_tests.workflows.data import stored
from contract_tests.workflows.data.test_archiving import turn
from contract_tests.workflows.fake_backups import COPIES
from contract_tests.workflows.stage import Stage
from control.cells.client import CellUnavailable
from storage.access import organizations
from storage.catalogue import cells
from storage.columns import EPOCH
from storage.data import backup_copies, backup_settings, backups
from storage.database import now
from storage.instances.instances import Instance

AT, LATER = "2030-01-01T00:00:00.000Z", "2030-01-01T01:00:00.000Z"


def organize(stage: Stage, plan: str, *, second_store: bool = True) -> None:
    with stage.database.write() as db:
        organizations.fetch(db, stage.org_id).plan = plan
        cells.fetch(db, "cell_fake").has_second_store = second_store


@pytest.fixture
def instance(stage: Stage) -> Instance:
    organize(stage, "team")
    made = stage.instance("running", ready_at=EPOCH + timedelta(days=1))
    choose(stage, made, "second_store")
    return made


def choose(stage: Stage, instance: Instance, target: str | None) -> None:
    with stage.database.write() as db:
        chosen = backup_settings.of_instance(db, instance)
        chosen.change({"copy_target": target}, "usr_1", now(db))
        db.add(chosen)


def tell(stage: Stage, instance: Instance, *copied: str, **told: Any) -> None:
    """What the cell says, and the control plane hears."""
    said = {**COPIES, "wanted": True, "status": "current", "copied": len(copied), **told}
    stage.cell.becomes(instance.id, copies=said, copied_backups=list(copied))
    turn(stage, "reconcile")


def wanted(stage: Stage, instance: Instance) -> bool | None:
    observed = stage.cell.observe(instance.id)
    assert observed is not None
    return (observed.get("copies") or {}).get("wanted")


def told_times(stage: Stage, instance: Instance) -> int:
    return stage.cell.effects(instance.id).count("set_copying")


def test_the_cell_is_told_once_and_again_after_something_changed(
    stage: Stage, instance: Instance
) -> None:
    for _ in range(2):
        turn(stage, "backups.schedule")
        assert wanted(stage, instance) is True
        turn(stage, "reconcile")
    assert told_times(stage, instance) == 1
    organize(stage, "solo")
    turn(stage, "backups.schedule")
    assert wanted(stage, instance) is False
    turn(stage, "reconcile")
    organize(stage, "team")
    choose(stage, instance, None)
    turn(stage, "backups.schedule")
    assert told_times(stage, instance) == 2


def test_a_cell_without_a_second_store_is_not_told(stage: Stage, instance: Instance) -> None:
    organize(stage, "team", second_store=False)
    turn(stage, "backups.schedule")
    stage.start("copies.tell", instance)
    stage.settle()
    assert told_times(stage, instance) == 0
    organize(stage, "team")
    turn(stage, "backups.schedule")
    assert told_times(stage, instance) == 1


def test_it_is_noted_of_each_backup_when_it_was_copied(stage: Stage, instance: Instance) -> None:
    first, second = (stored.backup(stage.database, stage.cell, instance) for _ in range(2))

    def noted() -> list[datetime | None]:
        return [stored.fetch(stage, instance, each).copied_at for each in (first, second)]

    tell(stage, instance, first, newest_at=AT, status="copying", waiting=1)
    assert noted() == [datetime.fromisoformat(AT), None]
    tell(stage, instance, first, second, newest_at=LATER)
    assert noted() == [datetime.fromisoformat(LATER)] * 2
    # A copy that is gone.
    tell(stage, instance, second, newest_at=LATER)
    assert noted() == [None, datetime.fromisoformat(LATER)]
    with stage.database.read() as db:
        known = backup_copies.of_instance(db, instance)
        assert (known.copied, known.waiting, known.status) == (1, 0, "current")


def test_what_could_not_be_read_is_read_the_next_time(stage: Stage, instance: Instance) -> None:
    backup_id = stored.backup(stage.database, stage.cell, instance)
    read = stage.cell.backup_copies

    def fail(_instance_id: str) -> dict[str, Any]:
        raise CellUnavailable("it is just starting")

    stage.cell.backup_copies = fail  # type: ignore[assignment,method-assign]
    tell(stage, instance, backup_id, newest_at=AT)
    assert stored.fetch(stage, instance, backup_id).copied_at is None
    stage.cell.backup_copies = read  # type: ignore[method-assign]
    tell(stage, instance, backup_id, newest_at=AT)
    assert stored.fetch(stage, instance, backup_id).copied_at == datetime.fromisoformat(AT)


def events(stage: Stage, instance: Instance) -> list[str]:
    found = stage.kinds_of_events(instance)
    return [kind.removeprefix("backup.") for kind in found if "copies" in kind]


def test_events_tell_of_an_interruption_once_and_of_its_end(
    stage: Stage, instance: Instance
) -> None:
    tell(stage, instance)
    tell(stage, instance, status="copying", waiting=2)
    assert events(stage, instance) == []
    for reason in ("it is full", "it is still full"):
        tell(stage, instance, status="late", reason=reason, waiting=2, restorable_until=AT)
    assert events(stage, instance) == ["copies_interrupted.v1"]
    data = stage.events(instance)[-1].data
    assert (data["reason"], data["waiting"], data["restorable_until"]) == ("it is full", 2, AT)
    tell(stage, instance, status="copying", waiting=1)
    assert len(events(stage, instance)) == 1, "not all is copied yet"
    tell(stage, instance)
    tell(stage, instance)
    assert events(stage, instance)[1:] == ["copies_resumed.v1"]


def test_a_cell_that_has_lost_its_second_store_copies_nothing(
    stage: Stage, instance: Instance
) -> None:
    backup_id = stored.backup(stage.database, stage.cell, instance)
    tell(stage, instance, backup_id, status="late", reason="it is away", newest_at=AT)
    stage.cell.becomes(instance.id, copies=None, copied_backups=[])
    turn(stage, "reconcile")
    with stage.database.read() as db:
        known = backup_copies.of_instance(db, instance)
    assert (known.status, known.copied, known.reason) == ("off", 0, None)
    assert stored.fetch(stage, instance, backup_id).copied_at is None
    assert events(stage, instance) == ["copies_interrupted.v1"]


def test_what_is_erased_or_dropped_leaves_nothing(stage: Stage, instance: Instance) -> None:
    backup_id = stored.backup(stage.database, stage.cell, instance)
    tell(stage, instance, backup_id, newest_at=AT)
    with stage.database.write() as db:
        backups.fetch(db, instance, backup_id, lock=True).delete()
        assert backup_copies.of_cell(db, "cell_fake").keys() == {instance.id}
    stage.start("backups.drop", instance)
    stage.settle()
    dropped = stored.fetch(stage, instance, backup_id)
    assert (dropped.status, dropped.copied_at) == ("deleted", None)
    stored.change(stage, instance, status="erasing", desired_status="erased")
    stage.start("instances.erase", instance)
    stage.settle()
    with stage.database.read() as db:
        assert backup_copies.of_cell(db, "cell_fake") == {}
