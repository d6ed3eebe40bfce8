"""Each workflow of an instance, when nothing goes wrong: record, cell and events agree."""

import pytest

from contract_tests.workflows.stage import Stage
from control.cells.client import CellRefused, CellUnavailable
from storage.database import now
from storage.instances import changes, instances


def test_provision_ends_running_with_a_ready_event(stage: Stage) -> None:
    instance = stage.instance()
    stage.start("instances.provision", instance)
    stage.settle()
    found = stage.fetch(instance)
    assert (found.status, found.desired_status, found.port) == ("running", "running", 8443)
    assert found.ready_at is not None
    assert stage.cell.effects(instance.id) == ["put"]
    (ready,) = stage.events(instance)
    assert ready.type == "instance.ready.v1"
    assert ready.org_id == stage.org_id
    assert ready.data == {
        "instance_id": instance.id,
        "engine": "duckdb",
        "version": "1.5",
        "size": "f0",
        "region": "local",
        "placement": "shared",
        "host": instance.host,
        "port": 8443,
    }


def test_pause_and_resume(stage: Stage) -> None:
    instance = stage.instance("pausing")
    stage.start("instances.pause", instance)
    stage.settle()
    assert (stage.fetch(instance).status, stage.fetch(instance).paused_by) == ("paused", "user")
    with stage.database.write() as db:
        row = instances.fetch(db, stage.org_id, instance.id)
        row.resume()
    stage.start("instances.resume", instance)
    stage.settle()
    assert (stage.fetch(instance).status, stage.fetch(instance).paused_by) == ("running", None)
    assert stage.kinds_of_events(instance) == ["instance.paused.v1", "instance.resumed.v1"]
    assert stage.cell.effects(instance.id) == ["pause", "put", "resume"]


def test_resize_backs_up_before_it_applies_the_change(stage: Stage) -> None:
    instance = stage.instance("running")
    with stage.database.write() as db:
        row = instances.fetch(db, stage.org_id, instance.id)
        wanted = {"size": "s0", "storage": 5 * 10**9, "name": "renamed"}
        ordered = changes.order(db, row, wanted, requested_by=None, now=now(db))
        assert {c.kind: c.status for c in ordered} == {
            "size": "pending",
            "storage": "pending",
            "name": "applied",
        }
    assert stage.fetch(instance).status == "resizing"
    assert stage.fetch(instance).size == "f0"
    stage.start("instances.resize", instance)
    stage.settle()
    found = stage.fetch(instance)
    assert (found.status, found.size, found.storage_bytes) == ("running", "s0", 5 * 10**9)
    assert stage.cell.effects(instance.id) == ["back_up", "resize"]
    observed = stage.cell.observe(instance.id)
    assert observed is not None
    assert (observed["size"], observed["figures"]["storage_bytes"]) == ("s0", 5 * 10**9)
    before, event = stage.events(instance)
    assert (before.type, before.data["kind"]) == ("backup.completed.v1", "pre_change")
    assert event.type == "instance.resized.v1"
    assert {c["kind"] for c in event.data["changes"]} == {"size", "storage"}
    with stage.database.read() as db:
        page = changes.page(db, stage.org_id, instance.id, limit=10, after=None)
    assert {change.status for change in page.items} == {"applied"}


def test_a_change_that_the_cell_refuses_leaves_the_instance_as_it_was(stage: Stage) -> None:
    instance = stage.instance("running")
    with stage.database.write() as db:
        row = instances.fetch(db, stage.org_id, instance.id)
        changes.order(db, row, {"size": "s0"}, requested_by=None, now=now(db))
    stage.start("instances.resize", instance)

    def refuse(action: str, _instance_id: str) -> None:
        if action == "resize":
            raise CellRefused("there is no room for s0")

    stage.cell.before = refuse
    stage.settle()
    found = stage.fetch(instance)
    assert (found.status, found.size) == ("running", "f0")
    assert found.status_reason == "the change failed: there is no room for s0"
    observed = stage.cell.observe(instance.id)
    assert observed is not None
    assert observed["size"] == "f0"
    assert stage.kinds_of_events(instance) == ["backup.completed.v1", "instance.failed.v1"]


def test_delete_then_erase(stage: Stage) -> None:
    instance = stage.instance("running")
    with stage.database.write() as db:
        instances.fetch(db, stage.org_id, instance.id).delete(purge_after=None)
    stage.start("instances.delete", instance)
    stage.settle()
    assert stage.fetch(instance).status == "deleted"
    with stage.database.write() as db:
        instances.fetch(db, stage.org_id, instance.id).erase()
    stage.start("instances.erase", instance)
    stage.settle()
    assert stage.fetch(instance).status == "erased"
    erased = [event.data["erased"] for event in stage.events(instance)]
    assert erased == [False, True]


def test_erasing_what_the_cell_never_had_succeeds(stage: Stage) -> None:
    instance = stage.instance("erasing")
    stage.cell.forget(instance.id)
    stage.start("instances.erase", instance)
    stage.settle()
    assert stage.fetch(instance).status == "erased"


def test_a_delete_is_not_held_up_by_a_provision_that_cannot_end(stage: Stage) -> None:
    instance = stage.instance()
    stage.start("instances.provision", instance)

    def unreachable(action: str, _instance_id: str) -> None:
        if action == "put":
            raise CellUnavailable("the cell cannot be reached")

    stage.cell.before = unreachable
    stage.turn()
    held_up = stage.fetch(instance)
    assert held_up.status == "provisioning"
    # Said at once, and not after ten minutes of trying.
    assert held_up.status_reason == "the cell cannot be reached"
    with stage.database.write() as db:
        instances.fetch(db, stage.org_id, instance.id).delete(purge_after=None)
    stage.start("instances.delete", instance)
    began = stage.database.clock_offset
    stage.settle()
    assert stage.fetch(instance).status == "deleted"
    assert (stage.database.clock_offset - began).total_seconds() < 60
    assert "instance.failed.v1" not in stage.kinds_of_events(instance)


@pytest.mark.parametrize("outage", [CellUnavailable, RuntimeError])
def test_a_cell_that_never_answers_ends_in_failed_with_a_reason(
    stage: Stage, outage: type[Exception]
) -> None:
    instance = stage.instance()
    stage.start("instances.provision", instance)

    def unreachable(_action: str, _instance_id: str) -> None:
        raise outage("canary of an internal error")

    stage.cell.before = unreachable
    stage.settle()
    found = stage.fetch(instance)
    assert found.status == "failed"
    assert found.status_reason is not None
    assert found.status_reason.startswith(
        "provisioning failed: it did not finish within 10 minutes"
    )
    # What an exception of the program says is for its operators and not for the owner.
    assert ("canary" in found.status_reason) == (outage is CellUnavailable)
    assert stage.kinds_of_events(instance) == ["instance.failed.v1"]
    assert stage.open_work() == []


def test_a_branch_says_why_its_source_cannot_be_copied_yet(stage: Stage) -> None:
    source = stage.instance("running")
    branch = stage.instance(branch_of=source.id)
    stage.start("instances.provision", branch)

    def refused(action: str, _instance_id: str) -> None:
        if action == "snapshot":
            raise CellUnavailable("the backup failed: a table is locked")

    stage.cell.before = refused
    stage.turn()
    found = stage.fetch(branch)
    assert found.status == "provisioning"
    said = "its source cannot be copied yet: the backup failed: a table is locked"
    assert found.status_reason == said
    stage.cell.before = lambda *_: None
    stage.settle()
    assert (stage.fetch(branch).status, stage.fetch(branch).status_reason) == ("running", None)
