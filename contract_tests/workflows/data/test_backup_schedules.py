"""Schedules of backups by the clock: each slot once, whoever looks, and retention after that."""

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest

from contract_tests.workflows.data import stored
from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import Stage
from control.policy.backups import BackupSchedule
from control.policy.sizes import GB
from control.workflows.data import backup_schedules
from storage.access import organizations
from storage.columns import EPOCH
from storage.data import backup_settings, backups, restores
from storage.data.backups import Backup
from storage.database import now
from storage.instances.instances import Instance
from storage.work import Work

LONG_AGO = EPOCH + timedelta(days=1)


@pytest.fixture
def instance(stage: Stage) -> Instance:
    """One that has run for long, of a plan with hourly backups."""
    with stage.database.write() as db:
        organizations.fetch(db, stage.org_id).plan = "team"
    return stage.instance("running", ready_at=LONG_AGO)


def turn(stage: Stage, kind: str = "backups.schedule") -> None:
    with stage.database.write() as db:
        take_turn(db, kind)
    stage.settle()


def choose(stage: Stage, instance: Instance, **values: Any) -> None:
    with stage.database.write() as db:
        settings = backup_settings.of_instance(db, instance)
        settings.change(values, None, now(db))
        db.add(settings)


def all_of(stage: Stage, instance: Instance) -> list[Backup]:
    with stage.database.read() as db:
        return backups.page(db, instance, limit=100, after=None).items


def moment(stage: Stage) -> datetime:
    with stage.database.read() as db:
        return now(db)


def test_each_slot_is_begun_once(stage: Stage, instance: Instance) -> None:
    choose(stage, instance, frequency="hourly")
    for expected in (1, 1, 1):
        turn(stage)
        assert len(all_of(stage, instance)) == expected
    for hours in (1, 2, 3):
        stage.pass_time(3600)
        turn(stage)
        assert len(all_of(stage, instance)) == 1 + hours
    held = BackupSchedule("hourly", 30, "02:00")
    newest, *older = all_of(stage, instance)
    assert newest.slot == held.last_slot(instance.id, moment(stage))
    assert [one.kind for one in (newest, *older)] == ["scheduled"] * 4
    stage.pass_time(50 * 3600)
    turn(stage)
    turn(stage)
    made = [one for one in all_of(stage, instance) if one.status_reason is None]
    assert len(made) == 5, "only the last slot is made up for"
    missed = [one for one in all_of(stage, instance) if one.status == "failed"]
    assert len(missed) == 49
    assert {one.status_reason for one in missed} == {backup_schedules.MISSED}
    assert len({one.slot for one in (*made, *missed)}) == 54
    assert all(one.dropped_at is not None for one in missed)
    assert stage.kinds_of_events(instance) == ["backup.completed.v1"] * 5


def test_what_was_not_due_is_not_missed(stage: Stage, instance: Instance) -> None:
    """It was paused meanwhile, as far as is known: what changed it was later."""
    choose(stage, instance, frequency="hourly")
    turn(stage)
    stage.pass_time(50 * 3600)
    stored.change(stage, instance, updated_at=moment(stage))
    turn(stage)
    assert [one.status_reason for one in all_of(stage, instance)] == [None, None]
    stage.pass_time(3 * 3600)
    turn(stage)
    # The first of three may be too soon after that.
    missed = [one for one in all_of(stage, instance) if one.status == "failed"]
    assert len(missed) in {1, 2}


def test_a_daily_backup_waits_for_its_window(stage: Stage, instance: Instance) -> None:
    held = BackupSchedule("daily", 30, "13:30")
    choose(stage, instance, window_start="13:30")
    turn(stage)
    wait = held.next_slot(instance.id, moment(stage)) - moment(stage)
    stage.pass_time(wait.total_seconds() - 30)
    turn(stage)
    assert len(all_of(stage, instance)) == 1
    stage.pass_time(31)
    turn(stage)
    assert len(all_of(stage, instance)) == 2


def test_two_workers_begin_a_slot_once(stage: Stage, instance: Instance) -> None:
    others = [stage.instance("running", ready_at=LONG_AGO) for _ in range(5)]
    with stage.database.read() as db:
        found = backup_settings.scheduled(db, ("running",), after="", limit=100)
    due = {each.instance_id: backup_schedules.due_slot(each, moment(stage)) for each in found}
    barrier, errors = threading.Barrier(4), []

    def look() -> None:
        barrier.wait()
        try:
            for each in found:
                slot = due[each.instance_id]
                assert slot is not None
                backup_schedules._begin(stage.database, each, slot)
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for each in (instance, *others):
        assert len(all_of(stage, each)) == 1
    assert len(stage.open_work()) == 6


@pytest.mark.parametrize("kind", ["scheduled", "manual"])
def test_one_that_is_being_made_is_waited_for(stage: Stage, instance: Instance, kind: str) -> None:
    with stage.database.write() as db:
        made = backups.request(db, instance, kind)
    turn(stage)
    assert [one.id for one in all_of(stage, instance)] == [made.id]
    with stage.database.write() as db:
        backups.fetch(db, instance, made.id, lock=True).became_failed("why")
    turn(stage)
    assert len(all_of(stage, instance)) == 2


@pytest.mark.parametrize("status", ["failed", "resizing", "restoring", "deleted"])
def test_what_is_not_at_rest_is_passed_over(stage: Stage, status: str) -> None:
    instance = stage.instance(status, ready_at=LONG_AGO)
    with stage.database.write() as db:
        take_turn(db, "backups.schedule")
    stage.settle()
    assert all_of(stage, instance) == []


def test_what_never_ran_has_nothing_to_back_up(stage: Stage) -> None:
    instance = stage.instance("running")
    turn(stage)
    assert all_of(stage, instance) == []


def test_a_paused_instance_is_backed_up_once(stage: Stage, instance: Instance) -> None:
    stored.change(stage, instance, status="paused", desired_status="paused", paused_by="user")
    turn(stage)
    assert len(all_of(stage, instance)) == 1
    for _ in range(3):
        stage.pass_time(86_400)
        turn(stage)
    assert len(all_of(stage, instance)) == 1
    resumed = {"status": "running", "desired_status": "running", "paused_by": None}
    stored.change(stage, instance, **resumed, updated_at=moment(stage))
    turn(stage)
    assert len(all_of(stage, instance)) == 2


def test_a_plan_that_allows_less_holds_at_once(stage: Stage, instance: Instance) -> None:
    choose(stage, instance, frequency="hourly")
    turn(stage)
    with stage.database.write() as db:
        organizations.fetch(db, stage.org_id).plan = "free"
    slots = set()
    # The next one comes after 22 hours at the earliest, in a window of its own.
    for _ in range(48):
        stage.pass_time(3600)
        turn(stage)
        slots |= {one.slot for one in all_of(stage, instance)}
    assert 1 < len(slots) <= 3


def test_retention_leaves_the_newest_and_what_is_needed(stage: Stage, instance: Instance) -> None:
    ages = {
        name: stored.backup(*where, kind, age=timedelta(days=days))
        for where in [(stage.database, stage.cell, instance)]
        for name, kind, days in (
            ("needed", "scheduled", 90),
            ("old", "scheduled", 80),
            ("before a change", "pre_change", 70),
            ("manual", "manual", 60),
            ("newest", "scheduled", 50),
        )
    }
    restored = stored.restore(stage, instance, ages["needed"], instance, "in_place")
    turn(stage, "backups.expire")
    kept = {name for name, id_ in ages.items() if id_ in stage.cell.stored(instance.id)}
    assert kept == {"needed", "manual", "newest"}
    gone = stored.fetch(stage, instance, ages["old"])
    assert (gone.status, gone.status_reason) == ("deleted", "its retention of 30 days is over")
    with stage.database.write() as db:
        stored_restore = restores.fetch(db, instance, restored, lock=True)
        stored_restore.became_completed(now(db))
    turn(stage, "backups.expire")
    assert ages["needed"] not in stage.cell.stored(instance.id)
    newer = stored.backup(stage.database, stage.cell, instance, "scheduled")
    turn(stage, "backups.expire")
    assert stage.cell.stored(instance.id) == sorted([ages["manual"], newer])


def test_a_shorter_retention_holds_for_what_there_is(stage: Stage, instance: Instance) -> None:
    ids = [
        stored.backup(stage.database, stage.cell, instance, "scheduled", age=timedelta(days=days))
        for days in (5, 3, 1)
    ]
    turn(stage, "backups.expire")
    assert stage.cell.stored(instance.id) == sorted(ids)
    choose(stage, instance, retention_days=2)
    turn(stage, "backups.expire")
    assert stage.cell.stored(instance.id) == [ids[2]]


def test_one_instance_that_cannot_be_written_holds_up_no_other(
    stage: Stage, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = stage.instance("running", ready_at=LONG_AGO)
    request = backups.request

    def refuse(db: Any, of: Instance, kind: str, **values: Any) -> Backup:
        if of.id == instance.id:
            raise ValueError("made up")
        return request(db, of, kind, **values)

    monkeypatch.setattr(backups, "request", refuse)
    turn(stage)
    assert all_of(stage, instance) == []
    assert len(all_of(stage, other)) == 1


def test_a_turn_leaves_nothing_behind(stage: Stage, instance: Instance) -> None:
    turn(stage)
    with stage.database.read() as db:
        states = {work.state for work in db.query(Work)}
    assert states == {"done"}
    assert stage.kinds_of_events(instance) == ["backup.completed.v1"]


def test_what_an_organization_stores_is_bounded(stage: Stage) -> None:
    """Of the oldest first, and never the last that an instance has."""
    small = 10 * GB
    with stage.database.write() as db:
        organizations.fetch(db, stage.org_id).plan = "free"
    first, second, gone = (stage.instance("running", ready_at=LONG_AGO) for _ in range(3))
    stored.change(stage, gone, status="deleted", desired_status="deleted")

    def made(of: Instance, hours: int, size_bytes: int, kind: str = "scheduled") -> str:
        age = timedelta(hours=hours)
        backup_id = stored.backup(stage.database, stage.cell, of, kind, age=age)
        with stage.database.write() as db:
            backups.fetch(db, of, backup_id, lock=True).stored_bytes = size_bytes
        return backup_id

    oldest, manual = made(first, 9, GB), made(first, 8, 2 * GB, "manual")
    kept = [made(first, 7, 4 * GB), made(second, 6, 4 * GB), made(gone, 5, 3 * small)]
    turn(stage, "backups.expire")
    assert stored.fetch(stage, first, oldest).status == "deleted"
    assert "more than the free plan allows" in str(stored.fetch(stage, first, oldest).status_reason)
    for of, backup_id in zip((first, second, gone), kept, strict=True):
        assert stored.fetch(stage, of, backup_id).status == "completed"
    assert stored.fetch(stage, first, manual).status == "completed"
    turn(stage, "backups.expire")
    assert stored.fetch(stage, second, kept[1]).status == "completed"
