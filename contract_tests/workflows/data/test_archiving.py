"""Continuous archiving by the clock: cells are told, the backup it needs is made, events tell."""

from datetime import timedelta
from typing import Any

import pytest

from contract_tests.workflows.data import stored
from contract_tests.workflows.fake_backups import ARCHIVING
from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import Stage
from storage.access import organizations
from storage.columns import EPOCH
from storage.data import backups, recovery_windows
from storage.database import now
from storage.instances.instances import Instance

AT = "2030-01-01T00:00:00.000Z"


@pytest.fixture
def instance(stage: Stage) -> Instance:
    with stage.database.write() as db:
        organizations.fetch(db, stage.org_id).plan = "team"
    return stage.instance(
        "running", engine="postgres", engine_version="18", ready_at=EPOCH + timedelta(days=1)
    )


def turn(stage: Stage, kind: str) -> None:
    with stage.database.write() as db:
        take_turn(db, kind)
    stage.settle()


def tell(stage: Stage, instance: Instance, **told: Any) -> None:
    """What the cell says, and the control plane hears."""
    said = {**ARCHIVING, "wanted": True, "status": "archiving", **told}
    stage.cell.becomes(instance.id, archiving=said)
    turn(stage, "reconcile")


def told(stage: Stage, instance: Instance) -> bool | None:
    observed = stage.cell.observe(instance.id)
    assert observed is not None
    return (observed.get("archiving") or {}).get("wanted")


def events(stage: Stage, instance: Instance) -> list[str]:
    found = stage.kinds_of_events(instance)
    return [kind.removeprefix("backup.") for kind in found if "archiving" in kind]


def test_the_cell_is_told_once_and_again_after_the_plan_changed(
    stage: Stage, instance: Instance
) -> None:
    turn(stage, "backups.schedule")
    assert told(stage, instance) is True
    turn(stage, "reconcile")
    turn(stage, "backups.schedule")
    assert stage.cell.effects(instance.id).count("set_archiving") == 1
    with stage.database.write() as db:
        organizations.fetch(db, stage.org_id).plan = "free"
    turn(stage, "backups.schedule")
    assert told(stage, instance) is False


def test_the_backup_that_wal_is_to_continue_is_made_at_once(
    stage: Stage, instance: Instance
) -> None:
    def count() -> int:
        with stage.database.read() as db:
            return len(backups.page(db, instance, limit=100, after=None).items)

    turn(stage, "backups.schedule")
    before = count()
    tell(stage, instance, needs_base=True)
    for expected in (1, 1):
        turn(stage, "backups.schedule")
        assert count() == before + expected
    # It did not do; not each minute another one.
    stage.pass_time(11 * 60)
    tell(stage, instance, needs_base=True)
    turn(stage, "backups.schedule")
    assert count() == before + 2
    tell(stage, instance, needs_base=False)
    stage.pass_time(11 * 60)
    turn(stage, "backups.schedule")
    assert count() == before + 2


def test_events_tell_of_an_interruption_once_and_of_its_end(
    stage: Stage, instance: Instance
) -> None:
    tell(stage, instance)
    assert events(stage, instance) == []
    tell(stage, instance, status="late", reason="the store is away", newest_at=AT)
    tell(stage, instance, status="late", reason="the store is still away", newest_at=AT)
    assert events(stage, instance) == ["archiving_interrupted.v1"]
    gap = {"at": AT, "reason": "a segment is missing", "restorable_until": None}
    tell(stage, instance, status="late", gap=gap)
    assert events(stage, instance) == ["archiving_interrupted.v1"] * 2
    tell(stage, instance, gap=gap, needs_base=True)
    assert len(events(stage, instance)) == 2, "no moment can be restored yet"
    tell(stage, instance, gap=gap)
    tell(stage, instance, gap=gap)
    assert events(stage, instance)[2:] == ["archiving_resumed.v1"]


def test_what_is_erased_leaves_nothing(stage: Stage, instance: Instance) -> None:
    tell(stage, instance)
    with stage.database.read() as db:
        assert recovery_windows.of_cell(db, "cell_fake").keys() == {instance.id}
    stored.change(stage, instance, status="erasing", desired_status="erased")
    stage.start("instances.erase", instance)
    stage.settle()
    with stage.database.read() as db:
        assert recovery_windows.of_cell(db, "cell_fake") == {}


def archived(stage: Stage, instance: Instance, *ages: int) -> dict[int, str]:
    """Backups that are so many days old, and continued by one chain, by their age."""
    made = {}
    for days in ages:
        made[days] = stored.backup(
            *(stage.database, stage.cell, instance, "scheduled"), age=timedelta(days=days)
        )
        with stage.database.write() as db:
            found = backups.fetch(db, instance, made[days], lock=True)
            found.consistent_at = found.started_at
    with stage.database.read() as db:
        moment = now(db)
    begins = (moment - timedelta(days=max(ages), seconds=1)).isoformat(timespec="milliseconds")
    ranges = [{"begins_at": begins, "ends_at": moment.isoformat(timespec="milliseconds")}]
    tell(stage, instance, ranges=ranges)
    return made


def statuses(stage: Stage, instance: Instance, made: dict[int, str]) -> dict[int, str]:
    return {days: stored.fetch(stage, instance, one).status for days, one in made.items()}


def test_retention_keeps_what_the_window_needs(stage: Stage, instance: Instance) -> None:
    """Of 40 days of backups, with a retention of 30 and a window of 7, none older than that."""
    made = archived(stage, instance, 40, 33, 8, 6)
    with stage.database.write() as db:
        long_ago = now(db) - timedelta(days=31)
        backups.fetch(db, instance, made[8], lock=True).completed_at = long_ago
    turn(stage, "backups.expire")
    found = statuses(stage, instance, made)
    assert found == {40: "deleted", 33: "deleted", 8: "completed", 6: "completed"}


@pytest.mark.nightly
def test_so_does_the_bound_on_what_is_stored(stage: Stage, instance: Instance) -> None:
    made = archived(stage, instance, 9, 8, 6, 5)
    with stage.database.write() as db:
        for backup_id in made.values():
            backups.fetch(db, instance, backup_id, lock=True).stored_bytes = 200 * 10**12
    turn(stage, "backups.expire")
    found = statuses(stage, instance, made)
    assert found == {9: "deleted", 8: "completed", 6: "deleted", 5: "completed"}
