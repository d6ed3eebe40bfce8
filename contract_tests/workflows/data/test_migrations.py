"""Migrations as workers run them: repeated, failing and killed at each step, watched and ended."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from contract_tests.by_day import one_in
from contract_tests.workflows.data import migrating
from contract_tests.workflows.fake_cell import nothing
from contract_tests.workflows.fake_migrations import checked, compared, copied, moment
from contract_tests.workflows.stage import Killed, Stage
from contract_tests.workflows.test_three_ways import probe, settle_after_kills
from control.cells.client import CellUnavailable
from control.policy.migrations import SOURCE_WITHIN, TELL_EVERY
from control.work import GiveUp
from control.workflows.data.migration_watch import LOST_AFTER
from storage.data.migrations import Migration
from storage.instances import instances
from storage.instances.instances import Instance
from storage.work import Work


@dataclass(frozen=True)
class MigrationCase:
    """What is asked of one in the status `before`, and what must hold once that has ended."""

    act: str
    before: str
    after: str
    effect: str
    when_refused: str

    @property
    def kind(self) -> str:
        return f"migrations.{self.act}"


CASES = {
    case.act: case
    for case in (
        MigrationCase("begin", "", "awaiting_source", "begin_migration", "failed"),
        MigrationCase("cutover", "syncing", "cutting_over", "cut_over_migration", "syncing"),
        MigrationCase("cancel", "copying", "cancelling", "cancel_migration", "cancelling"),
    )
}
EACH_STEP = [(case, step) for case in CASES for step in (case, "record")]


@pytest.fixture
def stage(one_stage: Stage) -> Iterator[Stage]:
    """One stage for the whole module: every test brings an instance of its own."""
    yield one_stage
    one_stage.cell.before = one_stage.cell.after = nothing


def begun(stage: Stage, case: MigrationCase) -> Migration:
    """One of which that has been asked."""
    migration = migrating.into(stage, stage.instance("running"), case.before)
    migrating.ask(stage, migration, case.kind)
    return migration


def check_ended_once(stage: Stage, case: MigrationCase, migration: Migration) -> None:
    assert migrating.fetch(stage, migration).status == case.after
    assert stage.cell.effects(migration.instance_id)[-1] == case.effect
    assert stage.cell.effects(migration.instance_id).count(case.effect) == 1
    assert stage.open_work() == []


@pytest.mark.parametrize("place", ["before", "inside", "after"])
@pytest.mark.parametrize(("name", "step"), one_in(3, EACH_STEP, several=True))
def test_killed_at_a_step_it_still_ends_once(
    stage: Stage, name: str, step: str, place: str
) -> None:
    pending = [(step, place)]

    def kill(at: str, where: str) -> None:
        if (at, where) in pending:
            pending.clear()
            raise Killed

    migration = begun(stage, CASES[name])
    assert settle_after_kills(stage, probe(kill)) == 1
    check_ended_once(stage, CASES[name], migration)


@pytest.mark.parametrize(("name", "step"), EACH_STEP)
def test_every_step_failing_thrice_still_ends_once(stage: Stage, name: str, step: str) -> None:
    failures = ["before", "inside", "after"]

    def fail(at: str, where: str) -> None:
        if at == step and where in failures:
            failures.remove(where)
            raise ConnectionError("made up")

    migration = begun(stage, CASES[name])
    stage.settle(probe(fail))
    assert failures == []
    check_ended_once(stage, CASES[name], migration)


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("name", CASES)
def test_a_cell_that_breaks_off_acts_once(stage: Stage, name: str, place: str) -> None:
    broken: list[str] = []

    def break_off(action: str, _instance_id: str) -> None:
        if not broken:
            broken.append(action)
            raise ConnectionResetError

    migration = begun(stage, CASES[name])
    setattr(stage.cell, place, break_off)
    stage.settle()
    assert broken == [CASES[name].effect]
    check_ended_once(stage, CASES[name], migration)


@pytest.mark.parametrize("name", CASES)
def test_what_can_never_be_done_leads_out(stage: Stage, name: str) -> None:
    """A cancel is asked for until it is done; one that was not begun is cancelled at the cell."""
    case = CASES[name]

    def refuse(at: str, place: str) -> None:
        if (at, place) == (name, "before"):
            raise GiveUp("made up")

    migration = begun(stage, case)
    assert stage.turn(probe(refuse))
    found = migrating.fetch(stage, migration)
    assert found.status == case.when_refused
    told = {"begin": "made up", "cutover": "the cutover failed: made up", "cancel": None}
    assert found.status_reason == told[name]
    assert found.keep_way_back_s is None
    stage.settle()
    kinds = stage.kinds_of_events(_instance(stage, migration))
    assert kinds == (["migration.failed.v1"] if name == "begin" else [])
    if name == "cancel":
        stage.pass_time(LOST_AFTER.total_seconds() + 1)
        migrating.watch(stage)
        assert stage.cell.effects(migration.instance_id)[-1] == case.effect


def _instance(stage: Stage, migration: Migration) -> Instance:
    with stage.database.read() as db:
        return instances.fetch(db, stage.org_id, migration.instance_id)


@pytest.mark.parametrize("name", CASES)
def test_the_owner_reads_what_holds_it_up(stage: Stage, name: str) -> None:
    migration = begun(stage, CASES[name])

    def away(_action: str, _instance_id: str) -> None:
        raise CellUnavailable("the cell cannot be reached")

    stage.cell.before = away
    stage.turn()
    assert migrating.fetch(stage, migration).status_reason == "the cell cannot be reached"
    stage.cell.before = nothing
    stage.settle()
    check_ended_once(stage, CASES[name], migration)


@pytest.mark.parametrize("name", CASES)
def test_work_that_was_lost_goes_on(stage: Stage, name: str) -> None:
    migration = begun(stage, CASES[name])
    with stage.database.write() as db:
        db.query(Work).delete()
    migrating.watch(stage)
    # To cancel twice does nothing, so that is not waited for.
    heard = CASES[name].effect in stage.cell.effects(migration.instance_id)
    assert heard == (name == "cancel")
    stage.pass_time(LOST_AFTER.total_seconds() + 1)
    migrating.watch(stage)
    check_ended_once(stage, CASES[name], migration)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("step", ["before", "after"])
def test_a_delete_meanwhile_ends_it(stage: Stage, name: str, step: str) -> None:
    migration = begun(stage, CASES[name])
    instance = _instance(stage, migration)

    def delete(at: str, place: str) -> None:
        if (at, place) == (name, step) and stage.fetch(instance).status == "running":
            with stage.database.write() as db:
                instances.fetch(db, stage.org_id, instance.id, lock=True).delete(None)
            stage.start("instances.delete", instance)

    stage.settle(probe(delete))
    migrating.watch(stage)
    found = migrating.fetch(stage, migration)
    assert (found.status, found.status_reason) == ("cancelled", "its instance was deleted")
    kinds = stage.kinds_of_events(instance)
    assert sorted(kinds) == ["instance.deleted.v1", "migration.failed.v1"]
    assert stage.open_work() == []


@pytest.fixture
def migration(stage: Stage) -> Migration:
    return migrating.into(stage, stage.instance("running"))


def told(stage: Stage, migration: Migration) -> list[str]:
    kinds = stage.kinds_of_events(_instance(stage, migration))
    return [kind.removeprefix("migration.").removesuffix(".v1") for kind in kinds]


def test_its_whole_way_is_told(stage: Stage, migration: Migration) -> None:
    def becomes(**said: Any) -> None:
        migrating.becomes(stage, migration, **said)

    becomes(status="preflight", source_received_at=moment())
    becomes(preflight=checked(("info", "so"), ("warning", "so"), ("info", "too")))
    becomes(status="copying", progress=copied(0))
    for done in (10, 90, 101, 150, 202):
        becomes(progress=copied(done))
    becomes(status="syncing", progress=copied(1000, lag_bytes=17))
    becomes(progress=copied(1000, lag_bytes=3))
    migrating.ask(stage, migration, "migrations.cutover")
    stage.settle()
    observed = migrating.of(stage, migration).observe(migration.id)
    assert observed is not None
    assert observed["keep_way_back_s"] == 60
    becomes(status="verifying")
    becomes(status="completed", verification=compared(), way_back_until=moment(60))
    kinds = ["preflight", *["progress"] * 5, "verified", "completed"]
    assert told(stage, migration) == kinds
    events = stage.events(_instance(stage, migration))
    assert {"info": 2, "warning": 1, "blocking": 0}.items() <= events[0].data.items()
    shown = [(one.data["status"], one.data["percent"]) for one in events[1:6]]
    of_copy = [("copying", 0), ("copying", 10), ("copying", 20)]
    ends = [("syncing", 100), ("verifying", 100)]
    assert shown == of_copy + ends
    found = migrating.fetch(stage, migration)
    assert (found.status, found.keep_way_back_s) == ("completed", 60)
    assert found.way_back_until is not None
    # What is kept is watched, and the rest stays as it ended.
    becomes(status="copying", way_back_until=None)
    found = migrating.fetch(stage, migration)
    assert (found.status, found.way_back_until) == ("completed", None)
    assert told(stage, migration) == kinds


def test_slow_progress_is_told_by_time(stage: Stage, migration: Migration) -> None:
    migrating.becomes(stage, migration, status="copying", progress=copied(1))
    stage.pass_time(TELL_EVERY.total_seconds() - 5)
    migrating.becomes(stage, migration, progress=copied(2))
    assert told(stage, migration) == ["progress"]
    stage.pass_time(6)
    migrating.watch(stage)
    assert told(stage, migration) == ["progress"] * 2


def test_a_cutover_that_the_cell_has_not_heard_of_stays_asked(
    stage: Stage, migration: Migration
) -> None:
    migrating.becomes(stage, migration, status="syncing")

    def away(_action: str, _instance_id: str) -> None:
        raise CellUnavailable("the cell cannot be reached")

    stage.cell.before = away
    migrating.ask(stage, migration, "migrations.cutover")
    stage.turn()
    assert migrating.fetch(stage, migration).status == "cutting_over"
    stage.cell.before = nothing
    migrating.watch(stage)
    assert migrating.fetch(stage, migration).status == "cutting_over"


def test_one_that_is_cancelled_stays_so_until_its_cell_has_cleaned(
    stage: Stage, migration: Migration
) -> None:
    migrating.becomes(stage, migration, status="copying")
    migrating.ask(stage, migration, "migrations.cancel")
    stage.settle()
    migrating.watch(stage)
    assert migrating.fetch(stage, migration).status == "cancelling"
    left = "the slot menagerie_1 is left at the source"
    migrating.becomes(stage, migration, status="cancelled", reason=left)
    found = migrating.fetch(stage, migration)
    assert (found.status, found.status_reason) == ("cancelled", left)
    (failed,) = stage.events(_instance(stage, migration))
    assert (failed.data["status"], failed.data["reason"]) == ("cancelled", left)


def test_what_is_to_be_known_of_a_completed_one_is_told(stage: Stage, migration: Migration) -> None:
    """As of what somebody wrote into the former database meanwhile."""
    kept = "objects were made in the former database meanwhile; it is kept as before_migration_1"
    migrating.becomes(stage, migration, status="completed", reason=kept)
    found = migrating.fetch(stage, migration)
    assert (found.status, found.status_reason) == ("completed", kept)


def test_one_without_a_source_is_given_up(stage: Stage, migration: Migration) -> None:
    stage.pass_time((SOURCE_WITHIN - timedelta(minutes=1)).total_seconds())
    migrating.watch(stage)
    assert migrating.fetch(stage, migration).status == "awaiting_source"
    stage.pass_time(61)
    migrating.watch(stage)
    assert stage.cell.effects(migration.instance_id)[-1] == "cancel_migration"
    migrating.becomes(stage, migration, status="cancelled")
    found = migrating.fetch(stage, migration)
    late = "its source has not arrived within 24 hours"
    assert (found.status, found.status_reason) == ("cancelled", late)


@pytest.mark.parametrize("status", ["copying", "cancelling"])
def test_one_that_its_cell_has_lost_ends(stage: Stage, migration: Migration, status: str) -> None:
    migrating.becomes(stage, migration, status="copying")
    if status == "cancelling":
        migrating.ask(stage, migration, "migrations.cancel")
    migrating.of(stage, migration).forget(migration.id)
    migrating.watch(stage)
    stage.settle()
    found = migrating.fetch(stage, migration)
    assert found.status == ("failed" if status == "copying" else "cancelled")
    assert told(stage, migration) == ["failed"]
