"""The work table's promises: order in a lane, leases, clocks, retries, deadlines, schedules."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from contract_tests.workflows.stage import LEASE_S, Killed, Stage
from control import work
from control.work import (
    Again,
    GiveUp,
    LeaseLost,
    Operation,
    Schedule,
    Worker,
    Workflow,
    queue,
    schedules,
)
from control.work import worker as worker_room
from control.work.workflow import OnFailure
from storage.database import Database, now
from storage.records import Organization, Work

Body = Callable[[Operation], None]


class Bench:
    """A workflow whose body and way out a test chooses, known to a stage's workers."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.on_failure: OnFailure = lambda _op, _db, _reason: None
        self.workflow = Workflow("test.kind", self._run, 100, self._fail)
        stage.registry = work.registry_of(self.workflow)
        self.ran: list[str] = []
        self.body: Body = lambda op: self.ran.append(op.args["name"])

    def start(self, name: str, lane: str = "lane", after_s: float = 0, **args: str) -> int:
        args = {"name": name, **args}
        with self.stage.database.write() as db:
            return work.enqueue(db, self.workflow, lane, args, after_s=after_s).seq

    def _run(self, op: Operation) -> None:
        self.body(op)

    def _fail(self, op: Operation, db: Session, reason: str) -> None:
        self.on_failure(op, db, reason)

    def row(self, seq: int) -> Work:
        with self.stage.database.read() as db:
            return db.get_one(Work, seq)

    def leased_for(self, seq: int) -> timedelta:
        with self.stage.database.read() as db:
            due = db.get_one(Work, seq).due
            assert due is not None
            return due - now(db)


@pytest.fixture
def bench(stage: Stage) -> Bench:
    return Bench(stage)


def claim(database: Database) -> Work | None:
    found = queue.claim(database, {"test.kind": 100}, LEASE_S)
    return None if found is None else found.work


def test_a_lane_keeps_its_order_and_lanes_do_not_wait_for_each_other(bench: Bench) -> None:
    for name in ("a1", "a2"):
        bench.start(name, "a")
    bench.start("b1", "b")
    first, second = claim(bench.stage.database), claim(bench.stage.database)
    assert first is not None
    assert second is not None
    assert [first.args["name"], second.args["name"]] == ["a1", "b1"]
    assert claim(bench.stage.database) is None, "a2 waits for a1"
    with bench.stage.database.write() as db:
        queue.end(db, queue.Lease(first.seq, first.lease), "done")
    third = claim(bench.stage.database)
    assert third is not None
    assert third.args["name"] == "a2"


def test_a_lane_waits_for_one_that_is_to_run_later(bench: Bench) -> None:
    bench.start("first", after_s=50)
    bench.start("second")
    assert claim(bench.stage.database) is None
    bench.stage.settle()
    assert bench.ran == ["first", "second"]


def test_what_is_enqueued_in_a_transaction_that_fails_never_was(bench: Bench) -> None:
    def fail() -> None:
        with bench.stage.database.write() as db:
            work.enqueue(db, bench.workflow, "lane", {"name": "never"})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    bench.stage.settle()
    assert bench.ran == []


def test_what_has_not_begun_does_for_what_is_started_after_it(bench: Bench) -> None:
    """However often it is asked for, and however long the first takes."""
    bench.workflow = replace(bench.workflow, joins=True)
    bench.stage.registry = work.registry_of(bench.workflow)
    first = [bench.start("a", request_id=f"req_{number}") for number in range(3)]
    assert len(set(first)) == 1
    assert bench.start("b") != first[0], "with other arguments"
    assert bench.start("a", "another lane") != first[0]
    assert claim(bench.stage.database) is not None
    later = [bench.start("a") for _ in range(3)]
    assert len({*later, first[0]}) == 2, "what has begun may have read what held before"
    assert len(bench.stage.open_work()) == 4


def test_two_workflows_of_one_kind_are_refused(bench: Bench) -> None:
    again = work.workflow("test.kind", deadline_s=1)(bench.body)
    with pytest.raises(ValueError, match=r"test\.kind"):
        work.registry_of(bench.workflow, again)


def test_a_worker_takes_only_kinds_it_knows(bench: Bench) -> None:
    """So that work of a newer program waits for a newer worker (41)."""
    bench.start("newer")
    assert queue.claim(bench.stage.database, {"instances.pause": 1}, LEASE_S) is None
    assert claim(bench.stage.database) is not None


def test_steps_match_by_name_when_a_new_program_adds_some_before_and_between(bench: Bench) -> None:
    """Old and new version side by side: what is in flight finishes (41)."""

    def old(op: Operation) -> None:
        op.step("one", lambda: bench.ran.append("one"))
        raise Killed

    def new(op: Operation) -> None:
        for name in ("before", "one", "between", "two"):
            op.step(name, lambda name=name: bench.ran.append(name))  # type: ignore[misc]

    bench.body = old
    bench.start("x")
    with pytest.raises(Killed):
        bench.stage.settle()
    bench.body = new
    bench.stage.pass_time(LEASE_S + 1)
    bench.stage.settle()
    assert bench.ran == ["one", "before", "between", "two"]


def test_after_a_lost_lease_nothing_can_be_written(bench: Bench) -> None:
    seq = bench.start("x")
    old = claim(bench.stage.database)
    bench.stage.pass_time(LEASE_S + 1)
    new = claim(bench.stage.database)
    assert old is not None
    assert new is not None
    assert new.lease > old.lease
    stale = Operation(old, bench.stage.services)
    with pytest.raises(LeaseLost):
        stale.step("one", lambda: "stale")
    with pytest.raises(LeaseLost):
        stale.step_in_transaction("two", _rename_everything)
    with pytest.raises(LeaseLost):
        queue.renew(bench.stage.database, stale.held, LEASE_S)
    with pytest.raises(LeaseLost):
        queue.postpone(bench.stage.database, stale.held, 1)
    assert bench.row(seq).steps == {}
    assert bench.row(seq).lease == new.lease
    with bench.stage.database.read() as db:
        assert db.scalars(select(Organization.name)).all() == ["Org"]


def _rename_everything(db: Any) -> None:
    for organization in db.scalars(select(Organization)):
        organization.name = "stale"


def test_only_the_databases_clock_counts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose clock is an hour off takes nothing early and takes nothing twice (39)."""
    seq = bench.start("later", after_s=1800)
    real = time.time
    for offset_s in (3600, -3600):
        monkeypatch.setattr(time, "time", lambda offset_s=offset_s: real() + offset_s)
        assert claim(bench.stage.database) is None
    bench.stage.pass_time(1801)
    held = claim(bench.stage.database)
    assert held is not None
    assert held.seq == seq
    for offset_s in (3600, -3600):
        monkeypatch.setattr(time, "time", lambda offset_s=offset_s: real() + offset_s)
        assert claim(bench.stage.database) is None, "a lease does not end by another's clock"


def test_again_waits_as_long_as_it_says_and_repeats_no_step(bench: Bench) -> None:
    turns: list[datetime] = []

    def body(op: Operation) -> None:
        op.step("one", lambda: bench.ran.append("one"))
        with bench.stage.database.read() as db:
            turns.append(now(db))
        if len(turns) == 1:
            raise Again(20)

    bench.body = body
    bench.start("x")
    bench.stage.settle()
    assert bench.ran == ["one"]
    first, second = turns
    assert second - first >= timedelta(seconds=20)


def test_errors_back_off_and_the_deadline_ends_them_once(bench: Bench) -> None:
    ended: list[str] = []
    tries: list[timedelta] = []

    def body(_op: Operation) -> None:
        tries.append(bench.stage.database.clock_offset)
        raise ConnectionError

    bench.body = body
    bench.on_failure = lambda _op, _db, reason: ended.append(reason)
    seq = bench.start("x")
    bench.stage.settle()
    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert gaps[0] < timedelta(seconds=1) < max(gaps) <= timedelta(seconds=31)
    assert 7 <= len(tries) <= 20
    (reason,) = ended
    assert reason.startswith("it did not finish within 100 seconds; the last error was: ")
    assert (bench.row(seq).state, bench.row(seq).due) == ("failed", None)


def test_a_way_out_that_fails_is_tried_until_it_succeeds(bench: Bench) -> None:
    attempts: list[str] = []

    def leave(_op: Operation, _db: Any, reason: str) -> None:
        attempts.append(reason)
        if len(attempts) < 3:
            raise ConnectionError

    def refuse(_op: Operation) -> None:
        raise GiveUp("no")

    bench.body, bench.on_failure = refuse, leave
    seq = bench.start("x")
    bench.stage.settle()
    assert attempts == ["no"] * 3
    assert bench.row(seq).state == "failed"


def test_a_turn_of_a_schedule_is_enqueued_once(bench: Bench) -> None:
    every = [Schedule("test", bench.workflow, every_s=60)]
    bench.body = lambda op: bench.ran.append(op.id)
    together([lambda: schedules.enqueue_due(bench.stage.database, every)] * 8)
    assert len(bench.stage.open_work()) == 1
    bench.stage.pass_time(61)
    schedules.enqueue_due(bench.stage.database, every)
    assert len(bench.stage.open_work()) == 1, "the turn before has not ended"
    bench.stage.settle()
    bench.stage.pass_time(61)
    schedules.enqueue_due(bench.stage.database, every)
    bench.stage.settle()
    assert len(bench.ran) == 2


def test_many_workers_run_each_operation_once_and_lanes_in_order(bench: Bench) -> None:
    lock = threading.Lock()

    def body(op: Operation) -> None:
        with lock:
            bench.ran.append(op.args["name"])

    bench.body = body
    workers = [
        Worker(bench.stage.services, bench.stage.registry, threads=2, keep_schedules=False)
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for number in range(60):
        bench.start(f"{number:03}", f"lane{number % 4}")
    until(lambda: not bench.stage.open_work())
    for worker in workers:
        worker.stop(wait_s=60)
    assert sorted(bench.ran) == [f"{number:03}" for number in range(60)]
    for lane in range(4):
        mine = [name for name in bench.ran if int(name) % 4 == lane]
        assert mine == sorted(mine)


def test_a_lease_is_renewed_while_a_long_step_runs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step takes longer than the lease by the database's clock, and no other worker takes it.

    Renewed often, a lease of a minute outlasts whatever the machine does between two renewals.
    """
    assert worker_room.RENEWALS_A_LEASE >= 3
    lease_s = 60.0
    monkeypatch.setattr(worker_room, "RENEWALS_A_LEASE", 1200)
    running, finish = threading.Event(), threading.Event()

    def body(op: Operation) -> None:
        def wait() -> None:
            bench.ran.append("one")
            running.set()
            assert finish.wait(60)

        op.step("long", wait)

    bench.body = body
    seq = bench.start("x")
    workers = [
        Worker(
            bench.stage.services,
            bench.stage.registry,
            threads=1,
            lease_s=lease_s,
            keep_schedules=False,
        )
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    assert running.wait(60)
    for _ in range(2):
        bench.stage.pass_time(lease_s * 0.6)
        until(lambda: bench.leased_for(seq) > timedelta(seconds=lease_s * 0.9))
    finish.set()
    until(lambda: not bench.stage.open_work())
    for worker in workers:
        worker.stop(wait_s=60)
    assert bench.ran == ["one"]
    assert bench.row(seq).lease == 1


def test_stopping_leaves_the_next_step_to_another_worker(bench: Bench) -> None:
    running, finish = threading.Event(), threading.Event()

    def body(op: Operation) -> None:
        def wait() -> None:
            running.set()
            assert finish.wait(60)

        op.step("one", wait)
        op.step("two", lambda: bench.ran.append("two"))

    bench.body = body
    seq = bench.start("x")
    worker = Worker(bench.stage.services, bench.stage.registry, threads=1, keep_schedules=False)
    worker.start()
    assert running.wait(60)
    worker.stop(wait_s=0)
    finish.set()
    worker.stop(wait_s=60)
    assert bench.ran == []
    assert bench.row(seq).steps == {"one": None}
    bench.stage.settle()
    assert bench.ran == ["two"]


def test_finished_work_is_forgotten_and_open_work_is_not(bench: Bench) -> None:
    bench.start("done")
    bench.stage.settle()
    bench.start("open")
    with bench.stage.database.write() as db:
        assert queue.forget_finished(db, now(db) + timedelta(seconds=1), 10) == 1
        assert db.scalar(select(func.count()).select_from(Work)) == 1


def together(acts: list[Callable[[], Any]]) -> None:
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def until(holds: Callable[[], bool], deadline_s: float = 60) -> None:
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)
