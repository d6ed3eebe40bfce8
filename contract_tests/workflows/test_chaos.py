"""Workers killed and stopped at random moments: all work is done, and none of it twice (33, 40)."""

import collections
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from contract_tests.databases import Cluster
from contract_tests.workflows.known import WORK
from contract_tests.workflows.processes import Workers, until
from contract_tests.workflows.stage import Stage
from contract_tests.workflows.worker_process import gate as gate_workflow
from control import work
from control.work import Worker
from control.workflows.instances import lifecycle
from control.workflows.instances.starting import start
from storage.errors import StorageUnavailable
from storage.instances import instances
from storage.records import Event, Instance, Organization, Work


@dataclass(frozen=True)
class Pace:
    """How many instances, of two operations each, and how many kills among those operations."""

    instances: int
    kills: int

    def done(self, kills: int) -> int:
        """How many operations are done when so many kills have been."""
        return kills * 2 * self.instances // (self.kills + 1)


BY_DAY, AT_NIGHT = Pace(instances=12, kills=3), Pace(instances=100, kills=12)


@pytest.fixture
def workers(stage: Stage, tmp_path: Path) -> Iterator[Workers]:
    url = stage.database.url.render_as_string(hide_password=False)
    made = Workers(url, tmp_path / "cell.db", tmp_path / "workers.log", lease_s=1.0)
    yield made
    made.close()


@pytest.mark.nightly
@pytest.mark.exclusive  # it loads the whole machine
@pytest.mark.parametrize(
    "pace",
    [
        pytest.param(BY_DAY, id="by day"),
        pytest.param(AT_NIGHT, id="at night", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.timeout(300)
def test_operations_survive_kills(stage: Stage, workers: Workers, pace: Pace) -> None:
    """Every instance is provisioned, then paused, while workers are killed in the middle of it."""
    mine = [stage.instance() for _ in range(pace.instances)]
    for instance in mine:
        stage.start("instances.provision", instance)
    asked: set[str] = set()
    for _ in range(3):
        workers.start()
    kills = 0
    end = time.monotonic() + 240
    while len(asked) < pace.instances or _open(stage):
        assert time.monotonic() < end, f"{_open(stage)} operations are left"
        # Only as much is asked as leaves something to do at the next kill, so that workers do not
        # end everything while this process stands still.
        asked |= _pause_running(stage, pace.done(kills + 2) - pace.instances - len(asked))
        if _done(stage) > pace.done(kills + 1):
            # Paced by progress, so that each falls on a worker in the midst of its work.
            workers.kill(random.choice(workers.running))
            workers.start()
            kills += 1
        time.sleep(0.02)
    assert kills >= pace.kills - 1
    effects = collections.Counter(stage.cell.effects())
    assert effects == {"put": pace.instances, "pause": pace.instances}
    for instance in mine:
        assert stage.fetch(instance).status == "paused"
        assert stage.kinds_of_events(instance) == ["instance.ready.v1", "instance.paused.v1"]
    with stage.database.read() as db:
        assert db.scalar(select(func.count()).select_from(Event)) == 2 * pace.instances
        states = db.execute(select(Work.state, func.count()).group_by(Work.state)).all()
        assert [tuple(row) for row in states] == [("done", 2 * pace.instances)]


@pytest.mark.nightly
def test_a_worker_stopped_beyond_its_lease_cannot_write(
    stage: Stage, workers: Workers, tmp_path: Path
) -> None:
    inside, out = tmp_path / "inside", tmp_path / "out"
    args = {"org_id": stage.org_id, "inside": str(inside), "out": str(out)}
    with stage.database.write() as db:
        seq = work.enqueue(db, gate_workflow, "lane", args).seq
    first = workers.start()
    until(lambda: inside.exists() and inside.read_text() != "", 60)
    _stop_outside_transactions(stage, first, seq)
    # Read only now: where the machine stood still, the first worker has lost the operation to
    # itself before. The second holds it for as long as it needs.
    first_lease = inside.read_text()
    workers.start(lease_s=300)
    until(lambda: inside.read_text() not in {"", first_lease}, 60)
    second_lease = inside.read_text()
    out.touch()
    until(lambda: not _open(stage), 60)
    first.send_signal(signal.SIGCONT)
    log = tmp_path / "workers.log"
    until(lambda: "lost its lease" in log.read_text(), 60)
    with stage.database.read() as db:
        assert int(second_lease) > int(first_lease or 0)
        assert db.get_one(Organization, stage.org_id).name == f"lease {second_lease}"
        row = db.get_one(Work, seq)
        assert (row.state, str(row.lease)) == ("done", second_lease)


@pytest.mark.nightly
def test_a_worker_outlives_restarts_of_its_database(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="menagerie-cluster-") as directory:
        Path(directory).chmod(0o755)
        cluster = Cluster(Path(directory) / "c", settings=())
        cluster.start()
        stage = Stage(cluster.migrated_database(), tmp_path / "cell.db")
        worker = Worker(stage.services, WORK, threads=2, lease_s=1.0, keep_schedules=False)
        worker.start()
        try:
            for how in (signal.SIGINT, signal.SIGQUIT):
                instance = stage.instance()
                stage.start("instances.provision", instance)
                cluster.stop(how)
                cluster.start()
                until(lambda instance=instance: _is_ready_once(stage, instance), 60)  # type: ignore[misc]
        finally:
            worker.stop()
            stage.close()
            cluster.stop(signal.SIGQUIT)


def _is_ready_once(stage: Stage, instance: Instance) -> bool:
    """Not while this process, too, holds a connection from before the restart."""
    try:
        if stage.fetch(instance).status != "running":
            return False
        told = stage.kinds_of_events(instance)
    except StorageUnavailable:
        return False
    assert told == ["instance.ready.v1"]
    return True


def _stop_outside_transactions(stage: Stage, worker: subprocess.Popen[bytes], seq: int) -> None:
    """Stop the worker when it holds no lock: it renews its lease in short transactions."""
    while True:
        worker.send_signal(signal.SIGSTOP)
        # Not before all its threads stand still.
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
        try:
            with stage.database.engine.connect() as connection:
                if stage.database.dialect == "sqlite":
                    connection.exec_driver_sql("PRAGMA busy_timeout=100")
                    connection.exec_driver_sql("UPDATE work SET kind = kind")
                else:
                    lock = "SELECT 1 FROM work WHERE seq = %s FOR UPDATE NOWAIT"
                    connection.exec_driver_sql(lock, (seq,))
                connection.invalidate()
        except OperationalError:
            worker.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        else:
            return


def _pause_running(stage: Stage, most: int) -> set[str]:
    """Ask so many running instances to pause, as a request would."""
    if most <= 0:
        return set()
    with stage.database.write() as db:
        running = instances.in_statuses(db, stage.org_id, ("running",))[:most]
        for instance in running:
            instance.pause()
            start(db, lifecycle.pause, instance)
        return {instance.id for instance in running}


def _open(stage: Stage) -> int:
    return len(stage.open_work())


def _done(stage: Stage) -> int:
    with stage.database.read() as db:
        return db.scalar(select(func.count()).where(Work.state == "done")) or 0
