"""What cells observe reaches the records with its events, and lost work is found and started."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from contract_tests.workflows.known import enqueue, take_turn
from contract_tests.workflows.stage import Stage
from control.cells.answer_checks import Observations
from control.cells.client import CellUnavailable
from control.work import schedules
from control.workflows.catalogue import cells as cell_workflows
from storage.catalogue import cells
from storage.database import now
from storage.instances import instances
from storage.instances.instances import told_of
from storage.network import networks
from storage.records import Cell, Instance


def run(stage: Stage, kind: str) -> None:
    """Run one turn of a scheduled workflow, and whatever follows from it."""
    with stage.database.write() as db:
        take_turn(db, kind)
    stage.settle()


def reconcile(stage: Stage) -> None:
    run(stage, "reconcile")


def test_idle_pause_and_wake_are_recorded_once(stage: Stage) -> None:
    instance = stage.instance("running")
    stage.cell.becomes(instance.id, status="paused", paused_by="idle")
    reconcile(stage)
    reconcile(stage)
    found = stage.fetch(instance)
    assert (found.status, found.paused_by, found.desired_status) == ("paused", "idle", "paused")
    stage.cell.becomes(instance.id, status="running", paused_by=None)
    reconcile(stage)
    reconcile(stage)
    found = stage.fetch(instance)
    assert (found.status, found.paused_by, found.desired_status) == ("running", None, "running")
    assert [(event.type, event.data) for event in stage.events(instance)] == [
        ("instance.paused.v1", {"instance_id": instance.id, "paused_by": "idle"}),
        ("instance.resumed.v1", {"instance_id": instance.id, "resumed_by": "connection"}),
    ]


def test_an_engine_that_fails_and_comes_back(stage: Stage) -> None:
    instance = stage.instance("running")
    stage.cell.becomes(instance.id, status="failed", status_reason="it crashed 5 times")
    reconcile(stage)
    found = stage.fetch(instance)
    assert (found.status, found.status_reason) == ("failed", "it crashed 5 times")
    stage.cell.becomes(instance.id, status="running", status_reason=None)
    reconcile(stage)
    found = stage.fetch(instance)
    assert (found.status, found.status_reason) == ("running", None)
    assert stage.kinds_of_events(instance) == ["instance.failed.v1", "instance.ready.v1"]


def test_a_network_that_no_cell_was_told_is_told(stage: Stage) -> None:
    """As a migration leaves one that it has written anew."""
    instance = stage.instance("running")
    stage.cell.becomes(instance.id, status="running")
    with stage.database.write() as db:
        network = networks.of_instance(db, instance)
        network.replace({"allow_cidrs": ["192.0.2.0/24"]}, None)
        db.add(network)
    reconcile(stage)
    assert stage.cell.effects(instance.id) == []
    stage.pass_time(11)
    reconcile(stage)
    assert stage.cell.told(instance.id)["allow_cidrs"] == ["192.0.2.0/24"]
    with stage.database.read() as db:
        assert networks.of_instance(db, instance).is_applied
    stage.pass_time(11)
    reconcile(stage)
    assert stage.cell.effects(instance.id) == ["set_network"]


def test_an_engine_under_restart_is_left_alone(stage: Stage) -> None:
    instance = stage.instance("running")
    stage.cell.becomes(instance.id, status="provisioning")
    reconcile(stage)
    assert stage.fetch(instance).status == "running"
    assert stage.events(instance) == []


def test_an_engine_that_was_started_again_tells_why_once(stage: Stage) -> None:
    instance = stage.instance("running")
    reason = "started again at 2030-01-01T00:00:00.000Z: it wanted more memory than its size has"
    stage.cell.becomes(instance.id, status="running", status_reason=reason)
    reconcile(stage)
    reconcile(stage)
    found = stage.fetch(instance)
    assert (found.status, told_of(found)) == ("running", reason)
    event = {"operation": "run", "reason": reason, "status": "running"}
    assert [(each.type, each.data) for each in stage.events(instance)] == [
        ("instance.failed.v1", {"instance_id": instance.id, **event}),
    ]


def test_an_instance_its_cell_lost_is_failed(stage: Stage) -> None:
    instance = stage.instance("running")
    stage.cell.forget(instance.id)
    reconcile(stage)
    reconcile(stage)
    assert stage.fetch(instance).status == "failed"
    assert stage.kinds_of_events(instance) == ["instance.failed.v1"]


UNTIL = "2030-01-01T00:00:00.000Z"
LATER = "2030-01-01T00:01:00.000Z"


def rotate(stage: Stage, instance: Instance, generation: int, overlap_until: str | None) -> None:
    """The cell's credentials become so, and are looked at twice."""
    told = {"generation": generation, "overlap_until": overlap_until}
    stage.cell.becomes(instance.id, credentials=told)
    reconcile(stage)
    reconcile(stage)


def rotations(stage: Stage, instance: Instance) -> list[tuple[str, int, str | None]]:
    found = stage.events(instance)
    assert {event.type for event in found} <= {"instance.credentials.rotated.v1"}
    members = {"instance_id", "phase", "generation", "overlap_until"}
    assert all(event.data.keys() == members for event in found), "and no credential"
    data = [event.data for event in found]
    return [(each["phase"], each["generation"], each["overlap_until"]) for each in data]


def test_a_rotation_is_told_at_its_beginning_and_end_once_each(stage: Stage) -> None:
    instance = stage.instance("running")
    rotate(stage, instance, 2, UNTIL)
    assert rotations(stage, instance) == [("started", 2, UNTIL)]
    assert stage.fetch(instance).credentials_generation == 2
    rotate(stage, instance, 2, None)
    assert rotations(stage, instance) == [("started", 2, UNTIL), ("completed", 2, None)]
    assert stage.fetch(instance).credentials_overlap_until is None


def test_rotations_that_overlap_end_together(stage: Stage) -> None:
    instance = stage.instance("paused")
    rotate(stage, instance, 2, UNTIL)
    rotate(stage, instance, 4, LATER)
    rotate(stage, instance, 4, None)
    assert rotations(stage, instance) == [
        ("started", 2, UNTIL),
        ("started", 3, LATER),
        ("started", 4, LATER),
        ("completed", 4, None),
    ]


def test_a_rotation_over_before_it_was_seen_is_told_whole(stage: Stage) -> None:
    instance = stage.instance("running")
    rotate(stage, instance, 2, None)
    assert rotations(stage, instance) == [("started", 2, None), ("completed", 2, None)]


def test_the_first_credential_is_no_rotation(stage: Stage) -> None:
    instance = stage.instance("running", credentials_generation=0)
    rotate(stage, instance, 1, None)
    assert rotations(stage, instance) == []
    assert stage.fetch(instance).credentials_generation == 1


@pytest.mark.parametrize("status", ["deleting", "deleted", "erasing", "resizing", "pausing"])
def test_observations_do_not_touch_what_is_not_at_rest(stage: Stage, status: str) -> None:
    instance = stage.instance(status)
    stage.cell.becomes(instance.id, status="failed")
    reconcile(stage)
    assert stage.fetch(instance).status == status
    assert stage.events(instance) == []


def test_an_observation_older_than_the_record_is_dropped(stage: Stage) -> None:
    """A resume that ends between reading the cell and writing the record is not undone."""
    instance = stage.instance("running")
    stage.cell.becomes(instance.id, status="paused", paused_by="idle")
    observations = stage.cell.observations

    def meanwhile() -> Observations:
        answer = observations()
        with stage.database.write() as db:
            row = instances.fetch(db, stage.org_id, instance.id)
            row.updated_at = now(db) + timedelta(milliseconds=5)
        return answer

    stage.cell.observations = meanwhile  # type: ignore[method-assign]
    reconcile(stage)
    assert stage.fetch(instance).status == "running"


@pytest.mark.parametrize(
    ("status", "ends"),
    [
        ("requested", "running"),
        ("provisioning", "running"),
        ("pausing", "paused"),
        ("resuming", "running"),
        ("resizing", "running"),
        ("deleting", "deleted"),
        ("erasing", "erased"),
    ],
)
def test_lost_work_is_started_again(stage: Stage, status: str, ends: str) -> None:
    with stage.database.read() as db:
        # Later than now, so that it is not old already where the machine stands still.
        changed = now(db) + timedelta(seconds=60)
    instance = stage.instance(status, updated_at=changed)
    reconcile(stage)
    assert stage.fetch(instance).status == status, "races settle first"
    stage.pass_time(60 + 11)
    reconcile(stage)
    assert stage.fetch(instance).status == ends


def test_work_under_way_is_not_started_twice(stage: Stage) -> None:
    instance = stage.instance()
    with stage.database.write() as db:
        lost = {"org_id": instance.org_id, "instance_id": instance.id}
        enqueue(db, "instances.provision", instance.id, lost, after_s=3600)
    stage.pass_time(11)
    with stage.database.write() as db:
        take_turn(db, "reconcile")
    assert stage.turn()
    assert len(stage.open_work()) == 1


def test_a_delete_that_failed_is_tried_again_until_it_succeeds(stage: Stage) -> None:
    instance = stage.instance("deleting")

    def unreachable(_action: str, _instance_id: str) -> None:
        raise CellUnavailable("the cell cannot be reached")

    stage.cell.before = unreachable
    stage.start("instances.delete", instance)
    stage.settle()
    found = stage.fetch(instance)
    assert (found.status, found.desired_status) == ("failed", "deleted")
    assert found.status_reason is not None
    assert "will be tried again" in found.status_reason
    stage.cell.before = lambda _action, _instance_id: None
    stage.pass_time(61)
    reconcile(stage)
    assert stage.fetch(instance).status == "deleted"
    kinds = stage.kinds_of_events(instance)
    assert kinds == ["instance.failed.v1", "instance.deleted.v1"]


def test_a_silent_cell_does_not_stop_the_reconciler(stage: Stage) -> None:
    def silent() -> Observations:
        raise CellUnavailable("the cell cannot be reached")

    stage.cell.observations = silent  # type: ignore[method-assign]
    instance = stage.instance("requested")
    stage.pass_time(11)
    reconcile(stage)
    assert stage.fetch(instance).status == "running"


def test_data_is_purged_when_its_retention_is_over_and_not_before(stage: Stage) -> None:
    with stage.database.read() as db:
        later = now(db) + timedelta(days=3)
    instance = stage.instance("deleted", purge_after=later)
    run(stage, "instances.purge")
    assert stage.fetch(instance).status == "deleted"
    stage.pass_time(timedelta(days=3).total_seconds() + 1)
    run(stage, "instances.purge")
    found = stage.fetch(instance)
    assert (found.status, found.desired_status) == ("erased", "erased")
    assert stage.cell.effects(instance.id) == ["erase"]


def test_a_start_that_takes_long_says_why_and_a_running_one_does_not(stage: Stage) -> None:
    instance = stage.instance()
    stage.start("instances.provision", instance)
    stage.settle()
    with stage.database.write() as db:
        row = instances.fetch(db, stage.org_id, instance.id)
        row.pause()
        row.became_paused("user")
        row.resume()
    stage.cell.becomes(instance.id, status="provisioning", status_reason="it takes long")
    run(stage, "reconcile")
    found = stage.fetch(instance)
    assert (found.status, found.status_reason) == ("resuming", "it takes long")
    stage.cell.becomes(instance.id, status="running", status_reason=None)
    stage.start("instances.resume", instance)
    stage.settle()
    found = stage.fetch(instance)
    assert (found.status, found.status_reason) == ("running", None)


def test_cells_describe_themselves(stage: Stage) -> None:
    run(stage, "cells.refresh")
    with stage.database.read() as db:
        cell = cells.fetch(db, "cell_fake")
        assert cell.engines == stage.cell.describe()["engines"]
        assert cell.refused == stage.cell.describe()["refused"]
        assert cell.ca_root_pem == stage.cell.describe()["ca"]["root_pem"]
        assert cell.ports == stage.cell.describe()["ports"]
        assert cell.last_seen_at is not None
    with stage.database.write() as db:
        db.execute(update(Cell).values(engines=[]))
    cell_workflows.refresh(stage.services, "cell_fake")
    with stage.database.read() as db:
        assert cells.fetch(db, "cell_fake").engines != []


@pytest.mark.parametrize("off_s", [0, -3600])
def test_the_clock_of_a_cell_is_compared(stage: Stage, off_s: float) -> None:
    stage.cell.clock_off_s = off_s
    cell_workflows.refresh(stage.services, "cell_fake")
    with stage.database.read() as db:
        skew_s = cells.fetch(db, "cell_fake").clock_skew_s
    assert skew_s is not None
    assert abs(skew_s - off_s) < 30


def test_a_starting_cell_is_heard_as_soon_as_it_answers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(stage, "cells.refresh")
    with stage.database.write() as db:
        cell_workflows.expect(db, cells.fetch(db, "cell_fake"))
        db.execute(update(Cell).values(engines=[]))

    def refuse() -> None:
        raise CellUnavailable("the cell cannot be reached")

    with monkeypatch.context() as patched:
        patched.setattr(stage.cell, "describe", refuse)
        assert stage.turn()
    with stage.database.read() as db:
        assert cells.fetch(db, "cell_fake").last_seen_at is None
    stage.settle()
    with stage.database.read() as db:
        cell = cells.fetch(db, "cell_fake")
        assert (cell.last_seen_at is not None, cell.engines != []) == (True, True)


def test_each_cell_is_asked_in_a_lane_of_its_own(stage: Stage) -> None:
    """So that one which does not answer keeps its own turns waiting, and nobody else's."""
    with stage.database.write() as db:
        cells.register(
            db,
            "cell_other",
            region="local",
            url="http+unix:///elsewhere",
            public_url="https://other.local.localhost:8443",
            instance_domain="localhost",
        )
    for _ in range(2):
        schedules.enqueue_due(stage.database, stage.registry.schedules)
    asked = {"cells.refresh", "metering", "reconcile"}
    found = sorted((each.kind, each.lane) for each in stage.open_work() if each.kind in asked)
    lanes = ("cell:cell_fake", "cell:cell_other")
    assert found == [(kind, lane) for kind in sorted(asked) for lane in lanes]


def test_a_branch_that_was_erased_before_its_turn_copies_nothing(stage: Stage) -> None:
    """Nobody would begin with the snapshot, which may be as large as its source."""
    source = stage.instance("running")
    branch = stage.instance(branch_of=source.id)
    stage.start("instances.provision", branch)
    with stage.database.write() as db:
        instances.fetch(db, stage.org_id, branch.id).erase()
    stage.start("instances.erase", branch)
    stage.settle()
    assert stage.fetch(branch).status == "erased"
    assert stage.cell.effects(source.id) == []
