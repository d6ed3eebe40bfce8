"""Moments come back whatever is killed meanwhile, and exactly what was committed by then."""

import math
import random
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pymysql
import pytest
import redis

from cell.runtime.process import mark_of, strays
from contract_tests.cell.backups.recovering import Archived, at, cell
from contract_tests.cell.rig import Rig, until


def receivers(one: Archived) -> list[int]:
    """The processes that receive the WAL of the instance."""
    mark = f"{mark_of(str(one.rig.home.resolve()))}/{one.instance_id}\0"

    def words(pid: int) -> bytes:
        with suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        return b""

    return [pid for pid in strays(mark) if b"pg_receivewal" in words(pid)]


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ["postgres", "mariadb", "redis", "valkey"])
def test_archiving_goes_on_from_where_a_killed_cell_left_it(tmp_path: Path, engine: str) -> None:
    """Nothing that was written while no cell ran is missing, and nothing else runs on."""
    with cell(tmp_path, stop_engines=False) as rig:
        one = Archived.make(rig, engine=engine)
        one.write(1)
        base = one.base()
        login = one.login
        assert bool(receivers(one)) == (engine == "postgres")
        rig.kill()
        until(lambda: not receivers(one), "what receives WAL ends with the cell")
        dead = one.write(2, login=login)
        one.speaker.write(one.site, login, [3])
        rig.start()
        rig.status_is(one.instance_id, "running")
        one.archived_until(one.write(4))
        assert one.archiving["gap"] is None
        assert one.restored(base, dead) == [1, 2]


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ["postgres", "mariadb", "redis", "valkey"])
def test_a_backup_across_a_restart_is_continued(tmp_path: Path, engine: str) -> None:
    """Of the engine, which was killed, and of the cell."""
    with cell(tmp_path) as rig:
        one = Archived.make(rig, engine=engine)
        one.write(1)
        base = one.base()
        pid = rig.engine_pid(one.instance_id)
        subprocess.run(["kill", "-9", str(pid)], check=True)
        until(lambda: rig.observe(one.instance_id)["restarts"], "it is started again")
        rig.status_is(one.instance_id, "running")
        moment = one.write(2)
        rig.terminate()
        rig.start()
        rig.status_is(one.instance_id, "running")
        one.archived_until(one.write(3))
        assert one.archiving["gap"] is None
        assert one.restored(base, moment) == [1, 2]


@dataclass
class Writer:
    """Writes numbers one after the other, and notes when each was begun and acknowledged."""

    one: Archived
    begun: dict[int, float] = field(default_factory=dict)
    acknowledged: dict[int, float] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        login, number = self.one.login, 0
        while not self.ended.is_set():
            number += 1
            self.begun[number] = time.time()
            try:
                self.one.speaker.write(self.one.site, login, [number])
            except (psycopg.Error, pymysql.err.MySQLError, redis.exceptions.RedisError, OSError):
                time.sleep(0.05)
            else:
                self.acknowledged[number] = time.time()

    def check(self, found: list[int], moment: float) -> None:
        must = {number for number, done in self.acknowledged.items() if done <= moment}
        may = {number for number, began in self.begun.items() if began <= moment}
        assert must <= set(found), "what was acknowledged by then is there"
        assert set(found) <= may, "what was begun later is not"


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("engine", ["postgres", "mariadb", "redis", "valkey"])
def test_exactly_what_was_committed_comes_back(tmp_path: Path, engine: str, seed: int) -> None:
    chance = random.Random(seed)
    with cell(tmp_path, stop_engines=False, restart_first_s=0.05) as rig:
        one = Archived.make(rig, engine=engine)
        base, began = one.base(), time.time() + 1
        writer = Writer(one)
        thread = threading.Thread(target=writer.run)
        thread.start()
        kills: list[Callable[[Rig, Archived], None]] = [_kill_cell, _kill_engine, _kill_receiver]
        for _ in range(6):
            time.sleep(chance.uniform(0.5, 3))
            chance.choice(kills)(rig, one)
        time.sleep(2)
        rig.status_is(one.instance_id, "running")
        writer.ended.set()
        thread.join()
        until_ = time.time()
        one.archived_until(at(math.floor(until_)))
        assert one.archiving["gap"] is None
        version = one.version
        for _ in range(5):
            moment = one.moment(chance.uniform(began, until_ - 1))
            source = {"source_backup": f"{one.instance_id}/{base}", "source_at": at(moment)}
            given = {"engine": engine, "engine_version": version}
            other = Archived(rig, version, rig.make(**given, **source), engine)
            writer.check(other.read(), moment)
            rig.action(other.instance_id, "erase")


def _kill_cell(rig: Rig, _one: Archived) -> None:
    rig.kill()
    rig.start()


def _kill_engine(rig: Rig, one: Archived) -> None:
    with suppress(OSError):
        subprocess.run(["kill", "-9", str(rig.engine_pid(one.instance_id))], check=False)


def _kill_receiver(_rig: Rig, one: Archived) -> None:
    for pid in receivers(one):
        subprocess.run(["kill", "-9", str(pid)], check=False)
