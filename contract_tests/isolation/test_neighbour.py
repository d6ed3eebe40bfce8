"""Holds promise 46 as far as no clock is needed: a neighbour that takes all it can is held back.

How much slower an instance is beside it is measured by test_slowdown.py, and by `make bench`.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import redis

from cell.runtime.cgroups import ROOT
from contract_tests.cell.rig import Rig, engine, until
from contract_tests.isolation.surroundings import Groups, alive

ENGINES = ("duckdb", "mariadb", "meilisearch", "postgres", "redis", "valkey")
QUERIES = 100

# CPU; memory, a good part of the size and given back; the disk.
NOISE = [
    "SELECT sum(sqrt(n)) FROM generate_series(1, 50000000) n",
    "SELECT length(string_agg(repeat('x', 1000), '')) FROM generate_series(1, 100000)",
    """DROP TABLE IF EXISTS noise;
    CREATE TABLE noise AS SELECT n, repeat('x', 1000) AS x FROM generate_series(1, 200000) n;
    UPDATE noise SET n = n + 1""",
]


@dataclass
class Neighbour:
    """An instance that is loud on several connections, and can be held still by signals."""

    rig: Rig
    instance_id: str
    threads: list[threading.Thread] = field(default_factory=list)
    quiet: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        for statement in NOISE:
            self.threads.append(threading.Thread(target=self._make_noise, args=(statement,)))
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        self.quiet.set()
        self.send(signal.SIGCONT)
        self.rig.action(self.instance_id, "erase")
        for thread in self.threads:
            thread.join()

    def send(self, number: signal.Signals) -> None:
        for path, _ in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.name), number)

    def throttled(self) -> int:
        """How often it has wanted more CPU than its size has."""
        group = dict(next(self._processes())[1])
        tree = ROOT / "cpu" / group["cpu"] if "cpu" in group else ROOT / group[""]
        figures = dict(line.split() for line in (tree / "cpu.stat").read_text().splitlines())
        return int(figures["nr_throttled"])

    def _processes(self) -> Iterator[tuple[Path, Groups]]:
        uid = (self.rig.home / "instances" / self.instance_id / "data").stat().st_uid
        return alive(uid, self.instance_id)

    def _make_noise(self, statement: str) -> None:
        with contextlib.suppress(psycopg.Error), postgres(self.rig, self.instance_id) as loud:
            while not self.quiet.is_set():
                loud.execute(statement.encode())


def postgres(rig: Rig, instance_id: str) -> psycopg.Connection[Any]:
    route, login = rig.route(instance_id), rig.reveal(instance_id)
    assert route is not None
    return psycopg.connect(
        host=str(Path(route["socket"]).parent),
        user=login["username"],
        password=login["password"],
        dbname="app",
        autocommit=True,
    )


@contextlib.contextmanager
def simple_query(rig: Rig, name: str, instance_id: str) -> Iterator[Callable[[], Any]]:
    route, password = rig.route(instance_id), rig.reveal(instance_id)["password"]
    assert route is not None
    path = route["socket"]
    if name == "duckdb":
        with engine(path) as http:
            yield lambda: http.post("/query", json={"sql": "SELECT 1"}, auth=("app", password))
    elif name == "meilisearch":
        with engine(path, {"Authorization": f"Bearer {password}"}) as http:
            yield lambda: http.get("/indexes").raise_for_status()
    elif name == "postgres":
        with postgres(rig, instance_id) as session:
            yield lambda: session.execute("SELECT 1").fetchall()
    elif name == "mariadb":
        connection = pymysql.connect(
            unix_socket=path, user="app", password=password, ssl_disabled=True
        )
        with connection, connection.cursor() as cursor:
            yield lambda: cursor.execute("SELECT 1")
    else:
        with redis.Redis(unix_socket_path=path, username="app", password=password) as client:
            client.set("key", "value")
            yield lambda: client.get("key")


def missing(rig: Rig, versions: dict[str, str], name: str) -> str | None:
    """Why nothing can be seen of the instance's neighbour here."""
    told = rig.get("/v1/cell").json()["confinement"]
    if not (told["cpu"]["enforced"] and told["memory"]["enforced"] and told["uid"]["enforced"]):
        return "nothing holds a neighbour here"
    for absent in sorted({name, "postgres"} - set(versions)):
        return f"no driver found {absent} on this machine"
    return None


@pytest.mark.exclusive  # it loads the whole machine
# The same groups hold whatever engine is loud: by day it is heard by one, at night by each.
@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [*(pytest.param(each, marks=pytest.mark.nightly) for each in ENGINES[:-1]), ENGINES[-1]],
)
def test_a_loud_neighbour_is_held_back_and_everybody_else_served(
    rig: Rig, versions: dict[str, str], name: str
) -> None:
    if reason := missing(rig, versions, name):
        pytest.skip(reason)
    mine = rig.make(engine=name, engine_version=versions[name])
    noise = rig.make(engine="postgres", engine_version=versions["postgres"])
    neighbour = Neighbour(rig, noise)
    with simple_query(rig, name, mine) as ask:
        neighbour.begin()
        try:
            until(neighbour.throttled, "the neighbour takes all it can get")
            before = neighbour.throttled()
            for _ in range(QUERIES):
                ask()
            until(lambda: neighbour.throttled() > before, "it is still held back")
        finally:
            neighbour.end()
    assert rig.observe(mine)["restarts"] == 0
    rig.action(mine, "erase")
