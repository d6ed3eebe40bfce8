"""What a cell tells of an instance that runs is told by its record while the cell tells it."""

from datetime import datetime

from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import Stage
from control.cells.client import CellRefused
from storage.instances import instances
from storage.instances.instances import Instance, told_of

FULL = "the storage is full: all of its 1.00 GB are used"
AGAIN = "started again at 2030-01-01T00:00:00.000Z: it wanted more memory than its size has"
LATER = "started again at 2030-01-01T00:00:09.000Z: it wanted more memory than its size has"


def tell(stage: Stage, instance: Instance, reason: str | None) -> Instance:
    """The cell tells it, and is looked at."""
    stage.cell.becomes(instance.id, status="running", status_reason=reason)
    with stage.database.write() as db:
        take_turn(db, "reconcile")
    stage.settle()
    found = stage.fetch(instance)
    assert found.status == "running"
    return found


def told(stage: Stage, instance: Instance) -> list[str]:
    """The reasons in its events."""
    found = stage.events(instance)
    assert {event.type for event in found} <= {"instance.failed.v1"}
    return [event.data["reason"] for event in found]


def test_what_a_running_instance_lacks_is_told_until_it_has_it(stage: Stage) -> None:
    instance = stage.instance("running")
    assert told_of(tell(stage, instance, FULL)) == FULL
    assert (
        told_of(tell(stage, instance, "started without libraries")) == "started without libraries"
    )
    assert told_of(tell(stage, instance, None)) is None
    assert told(stage, instance) == []


def test_the_same_reason_is_written_once(stage: Stage) -> None:
    instance = stage.instance("running")
    written: list[datetime] = [tell(stage, instance, FULL).updated_at for _ in range(3)]
    assert len(set(written)) == 1


def test_a_restart_is_one_event_whatever_else_is_told_of_it(stage: Stage) -> None:
    instance = stage.instance("running")
    for reason in (AGAIN, f"{AGAIN}; {FULL}", AGAIN):
        assert told_of(tell(stage, instance, reason)) == reason
    assert told(stage, instance) == [AGAIN]
    tell(stage, instance, f"{LATER}; {FULL}")
    assert told(stage, instance) == [AGAIN, f"{LATER}; {FULL}"]


def test_why_a_request_failed_stays_beside_it(stage: Stage) -> None:
    instance = stage.instance("running")
    tell(stage, instance, AGAIN)
    with stage.database.write() as db:
        instances.fetch(db, stage.org_id, instance.id).pause()
    stage.start("instances.pause", instance)

    def refuse(_action: str, _instance_id: str) -> None:
        raise CellRefused("it is busy")

    stage.cell.before = refuse
    stage.settle()
    failed = "pausing failed: it is busy"
    assert told_of(tell(stage, instance, AGAIN)) == f"{failed}; {AGAIN}"
    assert told(stage, instance) == [AGAIN, "it is busy"], "the restart is no news"
    assert told_of(tell(stage, instance, FULL)) == f"{failed}; {FULL}"
    assert told_of(tell(stage, instance, None)) == failed


def test_while_it_is_changed_it_is_told_once(stage: Stage) -> None:
    instance = stage.instance("resizing")
    with stage.database.write() as db:
        row = instances.fetch(db, stage.org_id, instance.id)
        row.is_held_up(FULL)
        row.cell_reason = FULL
    assert told_of(stage.fetch(instance)) == FULL


def test_what_was_told_of_an_engine_ends_with_it(stage: Stage) -> None:
    instance = stage.instance("running")
    tell(stage, instance, FULL)
    with stage.database.write() as db:
        instances.fetch(db, stage.org_id, instance.id).pause()
    stage.start("instances.pause", instance)
    stage.settle()
    found = stage.fetch(instance)
    assert (found.status, told_of(found)) == ("paused", None)
