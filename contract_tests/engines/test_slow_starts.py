"""An engine that reads its data for long is waited for, and one that just hangs is not."""

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import redis

from cell.engines.driver import Driver, EngineError, Login, why_not_started
from cell.engines.duckdb import OPENING, DuckDB
from cell.engines.postgres.data_folder import LOCK, STATUS_LINE, is_starting
from cell.instances.hosted import HostedInstance
from cell.instances.starting import until_usable
from cell.layout import Site
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host
from cell.runtime.process import Process
from cell.settings import CellSettings
from contract_tests.cell.rig import Rig, running, until
from contract_tests.engines.speakers import ONCE

KEYS = 6_000
# On a busy machine, too, an engine without data takes less.
START_TIMEOUT_S = 6.0
SLOWED = """#!/bin/sh
case "$1" in
--version) exec {real} "$@" ;;
esac
exec {real} "$@" --key-load-delay 2000
"""
LOGIN = Login("app", "secret")


@pytest.fixture
def slowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """With a Redis that takes two milliseconds for each key that it reads when it starts."""
    real = next(
        (found for each in os.get_exec_path() if (found := Path(each) / "redis-server").exists()),
        None,
    )
    if real is None:
        pytest.skip("no redis-server on this machine")
    folder = tmp_path / "bin"
    folder.mkdir()
    server = folder / "redis-server"
    server.write_text(SLOWED.format(real=real))
    server.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with running(tmp_path / "cell", confine=False, start_timeout_s=START_TIMEOUT_S) as made:
        yield made


@pytest.mark.nightly
def test_what_takes_longer_to_read_than_a_start_may_is_read_once(slowed: Rig) -> None:
    cell = slowed.get("/v1/cell").json()
    versions = {each["engine"]: each["versions"] for each in cell["engines"]}
    instance_id = slowed.make(engine="redis", engine_version=versions["redis"][0])
    route = slowed.route(instance_id)
    assert route is not None
    password = slowed.reveal(instance_id)["password"]
    client = redis.Redis(
        unix_socket_path=route["socket"], username="app", password=password, retry=ONCE
    )
    _fill(client)
    slowed.action(instance_id, "pause")

    began = time.monotonic()
    seen = slowed.action(instance_id, "resume")
    assert time.monotonic() - began > START_TIMEOUT_S
    assert (seen["status"], seen["restarts"], seen["status_reason"]) == ("running", 0, None)
    assert client.dbsize() == KEYS


@pytest.mark.nightly
def test_a_cell_that_starts_anew_waits_for_what_still_reads_its_data(slowed: Rig) -> None:
    versions = {
        each["engine"]: each["versions"] for each in slowed.get("/v1/cell").json()["engines"]
    }
    instance_id = slowed.make(engine="redis", engine_version=versions["redis"][0])
    route = slowed.route(instance_id)
    assert route is not None
    password = slowed.reveal(instance_id)["password"]
    client = redis.Redis(
        unix_socket_path=route["socket"], username="app", password=password, retry=ONCE
    )
    # Longer than a cell takes to start on a busy machine.
    _fill(client, 3 * KEYS)
    slowed.action(instance_id, "pause")
    with contextlib.suppress(httpx.HTTPError), ThreadPoolExecutor(1) as apart:
        resuming = apart.submit(slowed.action, instance_id, "resume")
        until(lambda: _loads(client), "it reads its data")
        reading = slowed.engine_pid(instance_id)
        slowed.kill()
        resuming.result()
    slowed.start()
    # Nobody else waits for it.
    assert _loads(client)
    seen = slowed.status_is(instance_id, "running")
    assert (slowed.engine_pid(instance_id), seen["restarts"]) == (reading, 0)
    assert client.dbsize() == 3 * KEYS


def _fill(client: Any, keys: int = KEYS) -> None:
    pipeline = client.pipeline(transaction=False)
    for number in range(keys):
        pipeline.set(f"key{number}", "kept")
    pipeline.execute()


def _loads(client: Any) -> bool:
    try:
        client.exists("key0")
    except redis.BusyLoadingError:
        return True
    except redis.ConnectionError:
        pass
    return False


class Hanging:
    """Stands for an engine that is up and takes nobody."""

    def __init__(self, *, loads: bool) -> None:
        self._loads = loads

    async def ready(self, _site: Site, _login: Login) -> bool:
        return False

    async def is_loading(self, _site: Site) -> bool:
        return self._loads


@dataclass
class Alive:
    """A process that uses so much of a CPU."""

    share: float
    alive = True

    @property
    def cpu_s(self) -> float:
        return time.monotonic() * self.share


@pytest.mark.parametrize(
    ("loads", "share", "within"),
    [
        (False, 0.001, "within 0 s$"),
        (True, 0.001, "within 1 s, and was still reading"),
        # One that says nothing to anybody while it works, as MariaDB when it recovers.
        (False, 0.5, "within 1 s, and was still reading"),
    ],
)
def test_nothing_is_waited_for_without_end(loads: bool, share: float, within: str) -> None:
    instance = HostedInstance(
        cast("Any", None), cast("Any", None), cast("Driver", Hanging(loads=loads))
    )
    settings = CellSettings(
        home=Path("unused"),
        cell_id="cell_x",
        control_public_key=b"",
        start_timeout_s=0.1,
        load_timeout_s=0.6,
    )
    with pytest.raises(EngineError, match=within):
        asyncio.run(until_usable(instance, cast("Process", Alive(share)), LOGIN, settings))


@pytest.mark.parametrize(("status", "starting"), [("starting", True), ("ready   ", False)])
def test_postgres_says_that_it_recovers(tmp_path: Path, status: str, starting: bool) -> None:
    site = Site("inst_x", 0, tmp_path, EnginePath(tmp_path))
    site.data.outside.mkdir()
    (site.data.outside / LOCK).write_text("\n".join(["x"] * STATUS_LINE + [status]) + "\n")
    assert is_starting(site) is starting


def test_duckdb_says_that_it_ended_in_a_replay(tmp_path: Path, host: Host) -> None:
    site = Site("inst_x", 0, tmp_path, EnginePath(tmp_path))
    site.data.outside.mkdir()
    (site.data.outside / OPENING).write_text("the process ended while it replayed the log")
    with subprocess.Popen(["sleep", "60"]) as child:
        process = Process(child.pid, 0, 0.0, "", child)
        child.kill()
        child.wait()
    said = why_not_started(DuckDB(host), site, process)
    assert said == "it was killed by SIGKILL; the process ended while it replayed the log"
