"""Workers that are killed are noticed at once, and those that only stand still are not."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract_tests.workflows.known import WORK, enqueue
from contract_tests.workflows.processes import Workers, until
from contract_tests.workflows.stage import Stage
from contract_tests.workflows.worker_process import gate as gate_workflow
from control import work
from control.work import Worker, queue
from control.work.presence import Presence
from storage.database import now
from storage.records import Work

LEASE_S = 600.0
PROMISED_S = 2.0


@pytest.fixture
def workers(stage: Stage, tmp_path: Path) -> Iterator[Workers]:
    url = stage.database.url.render_as_string(hide_password=False)
    made = Workers(url, tmp_path / "cell.db", tmp_path / "workers.log", lease_s=LEASE_S)
    yield made
    made.close()


class Gate:
    """An operation that waits inside a step, and says by which lease it is there."""

    def __init__(self, stage: Stage, directory: Path) -> None:
        self.stage = stage
        self.inside, self.out = directory / "inside", directory / "out"
        args = {"org_id": stage.org_id, "inside": str(self.inside), "out": str(self.out)}
        with stage.database.write() as db:
            self.seq = work.enqueue(db, gate_workflow, "lane", args).seq

    def lease(self) -> int:
        return int(self.inside.read_text() or 0) if self.inside.exists() else 0

    def row(self) -> Work:
        with self.stage.database.read() as db:
            return db.get_one(Work, self.seq)


@pytest.fixture
def gate(stage: Stage, tmp_path: Path) -> Iterator[Gate]:
    made = Gate(stage, tmp_path)
    yield made
    made.out.touch()


@pytest.mark.nightly
@pytest.mark.exclusive  # it holds a promised time
def test_a_step_of_a_killed_worker_is_taken_over_within_two_seconds(
    stage: Stage, gate: Gate, workers: Workers
) -> None:
    times = []
    for kill in range(1, 4):
        held = workers.running[0] if workers.running else workers.start()
        until(lambda kill=kill: gate.lease() == kill, 60)  # type: ignore[misc]
        heir = workers.start()
        until(lambda: len(shown(workers, stage)) == 2, 60)
        workers.kill(held)
        killed_at = time.monotonic()
        # By the lease it would take ten minutes.
        until(lambda kill=kill: gate.lease() == kill + 1, 60)  # type: ignore[misc]
        times.append(time.monotonic() - killed_at)
        assert workers.running == [heir]
    gate.out.touch()
    until(lambda: gate.row().state == "done", 60)
    # A machine that stalls spoils one of the times.
    assert sorted(times)[1] < PROMISED_S, times


def shown(workers: Workers, stage: Stage) -> set[int]:
    """The worker processes that others can see."""
    if stage.database.dialect == "sqlite":
        folder = Path(f"{stage.database.url.database}-workers")
        alive = [path.name for path in folder.glob("wrk_*") if path.suffix == ""]
        return set(range(len(set(alive) - Presence(stage.database).absent(alive))))
    with stage.database.read() as db:
        locks = "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE"
        mine = f"{locks} locktype = 'advisory' AND datname = current_database()"
        return set(db.connection().exec_driver_sql(mine).scalars())


@pytest.mark.nightly
def test_a_worker_that_stands_still_is_there_and_a_killed_one_is_not(
    stage: Stage, gate: Gate, workers: Workers
) -> None:
    process = workers.start()
    until(lambda: gate.lease() == 1, 60)
    (holder,) = until_held(stage)
    looker = Presence(stage.database)
    process.send_signal(signal.SIGSTOP)
    assert looker.absent({holder}) == set()
    workers.kill(process)
    until(lambda: looker.absent({holder}) == {holder}, 60)
    # It took the name along: nobody is taken for it later.
    workers.start()
    until(lambda: gate.lease() == 2, 60)
    assert looker.absent({holder}) == {holder}


def until_held(stage: Stage) -> set[str]:
    """A worker that was quicker than its listening holds by the lease alone, at first."""
    until(lambda: bool(queue.holders(stage.database)), 60)
    return queue.holders(stage.database)


def test_a_lease_that_is_released_is_due_and_work_that_waits_is_left(
    stage: Stage,
) -> None:
    with stage.database.write() as db:
        held = enqueue(db, "housekeeping", "a").seq
        waiting = enqueue(db, "housekeeping", "b", after_s=0).seq
    for _ in range(2):
        claim = queue.claim(stage.database, WORK.deadlines, LEASE_S, "wrk_gone")
        assert claim is not None
        if claim.work.seq == waiting:
            lease = queue.Lease(claim.work.seq, claim.work.lease)
            queue.postpone(stage.database, lease, 100)
    assert queue.holders(stage.database) == {"wrk_gone"}
    queue.release(stage.database, "wrk_other")
    assert queue.claim(stage.database, WORK.deadlines, LEASE_S) is None
    queue.release(stage.database, "wrk_gone")
    claim = queue.claim(stage.database, WORK.deadlines, LEASE_S, "wrk_heir")
    assert claim is not None
    assert (claim.work.seq, claim.work.lease) == (held, 2)
    assert queue.claim(stage.database, WORK.deadlines, LEASE_S) is None
    with stage.database.read() as db:
        due = db.get_one(Work, waiting).due
        assert due is not None
        assert due > now(db)


def test_a_worker_is_there_until_the_steps_that_its_stop_waits_for_are_done(
    stage: Stage, gate: Gate
) -> None:
    worker = Worker(
        stage.services, work.registry_of(gate_workflow), threads=1, keep_schedules=False
    )
    worker.start()
    until(lambda: gate.lease() == 1, 60)
    until(lambda: worker._presence.shown is not None, 60)
    name = worker._presence.shown
    assert name is not None
    looker = Presence(stage.database)
    stop = threading.Thread(target=worker.stop, args=(60,))
    stop.start()
    until(worker._stopping.is_set, 60)
    assert looker.absent({name}) == set()
    gate.out.touch()
    stop.join(60)
    until(lambda: looker.absent({name}) == {name}, 60)
    assert gate.row().steps == {"wait": None}
