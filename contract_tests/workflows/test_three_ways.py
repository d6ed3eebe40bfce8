"""Every workflow, each step: repeated, failing, and killed before, inside and after it (33, 21)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

from contract_tests.by_day import one_in
from contract_tests.databases import DIALECTS, Databases
from contract_tests.workflows.data import stored
from contract_tests.workflows.fake_cell import nothing
from contract_tests.workflows.stage import LEASE_S, Killed, Stage
from control.work import GiveUp, Operation
from storage.data import backups, restores
from storage.database import now
from storage.instances import changes, instances
from storage.instances.instances import Instance


@dataclass(frozen=True)
class Case:
    """A workflow, the status it starts from, and what must hold once it has ended."""

    kind: str
    before: str
    after: str
    effects: tuple[str, ...]
    event: str
    when_refused: str
    before_delete: str = ""
    told_before: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"undelete what was {self.before_delete}" if self.before_delete else self.kind


CASES = {
    case.name: case
    for case in (
        Case(
            "instances.provision", "requested", "running", ("put",), "instance.ready.v1", "failed"
        ),
        Case("instances.pause", "pausing", "paused", ("pause",), "instance.paused.v1", "running"),
        Case(
            "instances.resume",
            "resuming",
            "running",
            ("put", "resume"),
            "instance.resumed.v1",
            "paused",
        ),
        Case(
            "instances.resume",
            "deleted",
            "running",
            ("put", "resume"),
            "instance.resumed.v1",
            "paused",
            before_delete="running",
        ),
        Case(
            "instances.resume",
            "deleted",
            "paused",
            ("put",),
            "instance.paused.v1",
            "paused",
            before_delete="paused",
        ),
        Case(
            "instances.resize",
            "running",
            "running",
            ("back_up", "resize"),
            "instance.resized.v1",
            "running",
            told_before=("backup.completed.v1",),
        ),
        Case(
            "instances.delete", "deleting", "deleted", ("delete",), "instance.deleted.v1", "failed"
        ),
        Case("instances.erase", "erasing", "erased", ("erase",), "instance.deleted.v1", "failed"),
        Case(
            "restores.in_place",
            "restoring",
            "running",
            ("pause", "back_up", "restore", "resume"),
            "restore.completed.v1",
            "running",
            told_before=("backup.completed.v1",),
        ),
        Case(
            "restores.new_instance",
            "requested",
            "running",
            ("put",),
            "restore.completed.v1",
            "failed",
            told_before=("instance.ready.v1",),
        ),
        Case(
            "restores.recover",
            "restoring",
            "running",
            ("take_over_backups", "put", "resume"),
            "restore.completed.v1",
            "failed",
            told_before=("instance.credentials.rotated.v1",) * 2,
        ),
    )
}
STEPS = {
    "instances.provision": ("begin", "put", "usable", "record"),
    "instances.pause": ("pause", "record"),
    "instances.resume": ("wanted", "look", "put", "resume", "usable", "record"),
    "undelete what was running": ("wanted", "look", "put", "resume", "usable", "record"),
    "undelete what was paused": ("wanted", "look", "put", "record"),
    "instances.resize": ("plan", "protect", "back_up", "backed_up", "apply", "usable", "record"),
    "instances.delete": ("delete", "record"),
    "instances.erase": ("erase", "record"),
    "restores.in_place": (
        *("begin", "close", "protect", "back_up", "backed_up"),
        *("restore", "open", "usable", "record"),
    ),
    "restores.recover": (
        *("begin", "find", "choose", "put", "start", "usable", "pause", "record"),
    ),
    "restores.new_instance": ("begin", "put", "usable", "record"),
}
OFTEN_KILLED = {"instances.provision", "instances.pause"}
EACH_STEP = [(kind, step) for kind, steps in STEPS.items() for step in steps]


@pytest.fixture
def stage(one_stage: Stage) -> Iterator[Stage]:
    """One stage for the whole module: every test brings an instance of its own."""
    yield one_stage
    one_stage.cell.before = one_stage.cell.after = nothing


class Probed(Operation):
    """An operation whose steps can be watched and broken: `at(name, place)` may raise.

    Places: before the step; inside, when its act is done and not noted; after it was noted.
    """

    at: Callable[[str, str], None] = staticmethod(lambda _name, _place: None)

    def step(self, name: str, act: Callable[[], Any]) -> Any:
        self.at(name, "before")

        def watched() -> Any:
            result = act()
            self.at(name, "inside")
            return result

        result = super().step(name, watched)
        self.at(name, "after")
        return result

    def step_in_transaction(self, name: str, act: Callable[[Session], Any]) -> Any:
        self.at(name, "before")

        def watched(db: Session) -> Any:
            result = act(db)
            db.flush()
            self.at(name, "inside")
            return result

        result = super().step_in_transaction(name, watched)
        self.at(name, "after")
        return result


def probe(at: Callable[[str, str], None]) -> type[Probed]:
    return type("ProbedHere", (Probed,), {"at": staticmethod(at)})


def begin(stage: Stage, case: Case) -> Instance:
    """An instance for which the case's workflow has been started."""
    instance = stage.instance(case.before)
    if case.before_delete:
        _undelete(stage, instance, paused=case.before_delete == "paused")
    if case.kind == "instances.resize":
        with stage.database.write() as db:
            row = instances.fetch(db, stage.org_id, instance.id)
            changes.order(db, row, {"size": "s0"}, requested_by=None, now=now(db))
    if case.kind == "restores.recover":
        stored.backup(stage.database, stage.cell, instance)
        renewed = {"generation": 2, "overlap_until": None}
        stage.cell.becomes(instance.id, status="failed", data_lost=True, credentials=renewed)
    elif case.kind.startswith("restores."):
        source = stage.instance("running") if case.before == "requested" else instance
        backup_id = stored.backup(stage.database, stage.cell, source)
        stored.restore(stage, source, backup_id, instance, case.kind.removeprefix("restores."))
    stage.start(case.kind, instance)
    return instance


def _undelete(stage: Stage, instance: Instance, *, paused: bool) -> None:
    stage.cell.becomes(instance.id, status="stopped", paused_by=None)
    with stage.database.write() as db:
        row = instances.fetch(db, stage.org_id, instance.id)
        row.ready_at, row.paused_by = now(db), "user" if paused else None
        row.undelete(now(db))


def check_ended_once(stage: Stage, case: Case, instance: Instance) -> None:
    assert stage.fetch(instance).status == case.after
    assert tuple(stage.cell.effects(instance.id)) == case.effects
    assert stage.kinds_of_events(instance) == [*case.told_before, case.event]
    assert stage.open_work() == []


def settle_after_kills(stage: Stage, make: type[Operation]) -> int:
    """Go on as a new worker would after every kill; how many there were."""
    for kills in range(100):
        try:
            stage.settle(make)
        except Killed:
            stage.pass_time(LEASE_S + 1)
        else:
            return kills
    raise AssertionError("killed a hundred times")


def test_the_steps_listed_here_are_the_steps_there_are(stage: Stage) -> None:
    for kind, case in CASES.items():
        seen: list[str] = []

        def note(name: str, place: str, seen: list[str] = seen) -> None:
            if place == "before":
                seen.append(name)

        begin(stage, case)
        stage.settle(probe(note))
        assert tuple(seen) == STEPS[kind]


@pytest.mark.parametrize("place", ["before", "inside", "after"])
@pytest.mark.parametrize(("kind", "step"), one_in(3, EACH_STEP, several=True))
def test_killed_at_a_step_it_still_ends_once(
    stage: Stage, kind: str, step: str, place: str
) -> None:
    """Killed inside, the act runs twice, which the cell or the transaction makes one."""
    case = CASES[kind]
    pending = [(step, place)]

    def kill(name: str, where: str) -> None:
        if (name, where) in pending:
            pending.clear()
            raise Killed

    instance = begin(stage, case)
    assert settle_after_kills(stage, probe(kill)) == 1
    check_ended_once(stage, case, instance)


@pytest.mark.parametrize(("kind", "step"), one_in(2, EACH_STEP, several=True))
def test_every_step_failing_thrice_still_ends_once(stage: Stage, kind: str, step: str) -> None:
    case = CASES[kind]
    failures = ["before", "inside", "after"]

    def fail(name: str, where: str) -> None:
        if name == step and where in failures:
            failures.remove(where)
            raise ConnectionError("made up")

    instance = begin(stage, case)
    stage.settle(probe(fail))
    assert failures == []
    check_ended_once(stage, case, instance)


@pytest.mark.parametrize(("kind", "step"), one_in(2, EACH_STEP, several=True, first=1))
def test_a_step_that_can_never_succeed_leads_out(stage: Stage, kind: str, step: str) -> None:
    case = CASES[kind]

    def refuse(name: str, place: str) -> None:
        if (name, place) == (step, "before"):
            raise GiveUp("made up")

    instance = begin(stage, case)
    stage.settle(probe(refuse))
    found = stage.fetch(instance)
    assert found.status == case.when_refused
    assert found.status_reason is not None
    assert found.status_reason.endswith(": made up")
    *before, failed = stage.events(instance)
    assert {one.type for one in before} <= {"backup.completed.v1", "backup.failed.v1"}
    assert failed.type == "instance.failed.v1"
    assert (failed.data["status"], failed.data["reason"]) == (case.when_refused, "made up")
    with stage.database.read() as db:
        assert changes.pending(db, stage.org_id, instance.id) == []
        assert backups.first_open(db, instance, *backups.KINDS) is None
        assert restores.into(db, instance, case.kind.removeprefix("restores.")) is None


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("kind", CASES)
def test_a_cell_that_breaks_off_every_act_once_acts_once(
    stage: Stage, kind: str, place: str
) -> None:
    case = CASES[kind]
    broken: set[str] = set()

    def break_off(action: str, _instance_id: str) -> None:
        if action not in broken:
            broken.add(action)
            raise ConnectionResetError

    instance = begin(stage, case)
    setattr(stage.cell, place, break_off)
    stage.settle()
    assert broken == set(case.effects)
    check_ended_once(stage, case, instance)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in OFTEN_KILLED else pytest.param(kind, marks=pytest.mark.nightly)
        for kind in CASES
    ],
)
def test_killed_at_each_statement_change_and_event_stay_together(
    databases: Databases, tmp_path: Path, dialect: str, kind: str
) -> None:
    case = CASES[kind]
    stage = Stage(databases.migrated(dialect), tmp_path / "cell.db")
    statements = 0
    kill_at: int | None = None

    @event.listens_for(stage.database.engine, "before_cursor_execute")
    def _count(*_of: Any) -> None:
        nonlocal statements, kill_at
        statements += 1
        if kill_at is not None and statements >= kill_at:
            kill_at = None
            raise Killed

    for number in range(1, 200):
        kill_at = None
        instance = begin(stage, case)
        statements, kill_at = 0, number
        kills = 0
        while not _settled(stage):
            kills += 1
            kill_at = None
            ended = stage.fetch(instance).status == case.after and case.before != case.after
            changed = stage.fetch(instance).updated_at > instance.updated_at
            told = case.event in stage.kinds_of_events(instance)
            assert told == (
                ended or (case.before == case.after and changed and _applied(stage, instance))
            )
            stage.pass_time(LEASE_S + 1)
        kill_at = None
        check_ended_once(stage, case, instance)
        if kills == 0:
            break
    else:
        raise AssertionError("the workflow has no end")
    stage.close()


def _settled(stage: Stage) -> bool:
    try:
        stage.settle()
    except Killed:
        return False
    return True


def _applied(stage: Stage, instance: Instance) -> bool:
    return stage.fetch(instance).size == "s0"
