"""An engine that runs and answers nobody is started again, and its owner is told why."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
import redis

from cell.engines import find
from cell.engines.driver import Health
from cell.runtime.host import Host
from contract_tests.cell.rig import SMALL, Rig, running, until
from contract_tests.engines.conftest import Subject
from contract_tests.engines.mysql_sessions import use_up_threads
from contract_tests.engines.speakers import ONCE

# No second answer comes before the engine has been asked once more.
SETTINGS: dict[str, Any] = {"health_every_s": 0.5, "stuck_after_s": 1.0, "silent_after_s": 1.0}
LOOP = "while true do end"
WRITTEN = f"redis.call('SET', KEYS[1], 'written') {LOOP}"
FUNCTION = f"#!lua name=hog\nredis.register_function('hog', function() {LOOP} end)"
# Bounded by the server, whatever the session sets: they end, with an error or an answer.
BOUNDED = (
    "SET SESSION max_heap_table_size = 1 << 40, tmp_table_size = 1 << 40",
    "SET SESSION max_session_mem_used = 1 << 60",
    "CREATE TEMPORARY TABLE app.hog ENGINE=MEMORY AS SELECT seq FROM seq_1_to_100000000",
    "SELECT COUNT(*) FROM (SELECT DISTINCT seq, REPEAT('x', 100) FROM seq_1_to_2000000) AS many",
    "SELECT LENGTH(REPEAT('x', 4000000000))",
    "SELECT LENGTH(JSON_ARRAYAGG(REPEAT('x', 1000000))) FROM seq_1_to_2000",
    "SET SESSION group_concat_max_len = 4000000000",
    "SELECT LENGTH(GROUP_CONCAT(REPEAT('x', 1000000))) FROM seq_1_to_2000",
    "SET SESSION sort_buffer_size = 1 << 40, join_buffer_size = 1 << 40",
    "SELECT COUNT(*) FROM (SELECT seq FROM seq_1_to_1000000 ORDER BY REVERSE(seq) LIMIT 999999) t",
)
# What wants more memory than the size has, and is not refused it.
HOGS = ("SELECT LENGTH(SFORMAT('{:>1500000000}', 'x'))",)


# One driver runs both, so that the second has its turn at night.
on_either = pytest.mark.parametrize(
    "engine", ["valkey", pytest.param("redis", marks=pytest.mark.nightly)]
)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("liveness") / "cell", **SETTINGS) as made:
        yield made


def order(rig: Rig, host: Host, engine: str, **changes: Any) -> str:
    driver = find(host).drivers.get(engine)
    if driver is None:
        pytest.skip(f"no driver found {engine} on this machine")
    return rig.make(engine=engine, engine_version=driver.versions()[0], **changes)


def tenant(rig: Rig, instance_id: str) -> redis.Redis:
    route = rig.route(instance_id)
    assert route is not None
    password = rig.reveal(instance_id)["password"]
    return redis.Redis(
        unix_socket_path=route["socket"], username="app", password=password, retry=ONCE
    )


def say(client: redis.Redis, *words: str) -> threading.Thread:
    """What will not be answered."""

    def run() -> None:
        try:
            client.execute_command(*words)  # type: ignore[no-untyped-call]
        except redis.exceptions.RedisError:
            client.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def started_again(rig: Rig, instance_id: str) -> str:
    """Why, in the words its owner is told."""
    seen = until(lambda: _restarted(rig, instance_id), "it is started again", 120)
    assert seen["status"] == "running"
    return str(seen["status_reason"])


def _restarted(rig: Rig, instance_id: str) -> dict[str, Any] | None:
    seen = rig.observe(instance_id)
    return seen if seen["restarts"] and seen["status_reason"] else None


@pytest.mark.nightly
@on_either
def test_a_script_that_wrote_and_loops_ends_with_its_engine(
    rig: Rig, host: Host, engine: str
) -> None:
    instance_id = order(rig, host, engine)
    with tenant(rig, instance_id) as client:
        client.set("kept", "value")
    hung = say(tenant(rig, instance_id), "EVAL", WRITTEN, "1", "key")
    reason = started_again(rig, instance_id)
    assert "a script that has written cannot be stopped" in reason
    hung.join()
    with tenant(rig, instance_id) as client:
        assert client.get("kept") == b"value"
    log = (rig.home / "instances" / instance_id / "log" / "engine.log").read_text()
    assert reason in log


@on_either
@pytest.mark.nightly
def test_a_script_that_only_loops_ends_alone(rig: Rig, host: Host, engine: str) -> None:
    instance_id = order(rig, host, engine)
    pid = rig.engine_pid(instance_id)
    client = tenant(rig, instance_id)
    client.execute_command("FUNCTION", "LOAD", FUNCTION)  # type: ignore[no-untyped-call]
    for words in (("EVAL", LOOP, "0"), ("FCALL", "hog", "0")):
        say(tenant(rig, instance_id), *words).join()
        assert client.ping()
    client.close()
    assert rig.engine_pid(instance_id) == pid
    assert rig.observe(instance_id)["restarts"] == 0


# The cell waits for every driver in one way: by day one shows it.
# By day a script that loops.
@pytest.mark.nightly
@pytest.mark.parametrize(
    "engines",
    [
        pytest.param(("valkey",), id="valkey"),
        pytest.param(("duckdb", "mariadb", "postgres"), id="others", marks=pytest.mark.nightly),
    ],
)
def test_an_engine_that_says_nothing_is_started_again(
    rig: Rig, host: Host, engines: tuple[str, ...]
) -> None:
    made = [order(rig, host, engine) for engine in engines]
    for instance_id in made:
        os.kill(rig.engine_pid(instance_id), signal.SIGSTOP)
    for instance_id in made:
        assert "it does not respond to logins" in started_again(rig, instance_id)


@on_either
@pytest.mark.nightly
def test_copies_that_begin_again_and_again_hide_no_silence(
    rig: Rig, host: Host, engine: str
) -> None:
    instance_id = order(rig, host, engine)
    path = f"/v1/instances/{instance_id}/actions/snapshot"
    done = threading.Event()

    def copy() -> None:
        while not done.wait(0.1):
            rig.act("POST", path, {"label": "again"})

    copying = threading.Thread(target=copy)
    copying.start()
    try:
        until(lambda: rig.observe(instance_id)["status"] == "running", "it runs")
        os.kill(rig.engine_pid(instance_id), signal.SIGSTOP)
        assert "it does not respond to logins" in started_again(rig, instance_id)
    finally:
        done.set()
        copying.join()


@pytest.mark.nightly
def test_an_engine_without_a_thread_for_the_cell_is_started_again(rig: Rig, host: Host) -> None:
    """Nobody's credential could be ended at it."""
    instance_id = order(rig, host, "mariadb")
    held = use_up_threads(rig.engine_pid(instance_id), lambda: _connect(rig, instance_id))
    assert "no thread, connection or memory left" in started_again(rig, instance_id)
    for each in held:
        with pytest.raises(pymysql.err.MySQLError):
            each.ping(reconnect=False)
    assert _ask(rig, instance_id, "SELECT 1") == ((1,),)


@pytest.mark.nightly
def test_an_engine_that_wanted_too_much_memory_says_so(rig: Rig, host: Host) -> None:
    if not host.confinement["memory"].enforced:
        pytest.skip("memory is not limited here")
    small = {**SMALL, "name": "tiny", "memory_bytes": 480 * 2**20}
    instance_id = order(rig, host, "mariadb", size=small)
    pid = rig.engine_pid(instance_id)
    _say(rig, instance_id, BOUNDED)
    assert _ask(rig, instance_id, "SELECT 1") == ((1,),)
    assert rig.engine_pid(instance_id) == pid
    for hog in HOGS:
        with pytest.raises(pymysql.err.OperationalError):
            _ask(rig, instance_id, hog)
    assert "exceeded the memory of its size" in started_again(rig, instance_id)
    assert _ask(rig, instance_id, "SELECT 1") == ((1,),)


@pytest.mark.nightly
def test_an_engine_at_work_is_well(running: Subject) -> None:
    pulse = running.driver.health(running.site, running.login)
    assert running.run(pulse) is Health.WELL
    running.stop()
    pulse = running.driver.health(running.site, running.login)
    assert running.run(pulse) is Health.SILENT


def _connect(rig: Rig, instance_id: str) -> Any:
    route = rig.route(instance_id)
    assert route is not None
    password = rig.reveal(instance_id)["password"]
    path = route["socket"]
    return pymysql.connect(
        unix_socket=path, user="app", password=password, database="app", ssl_disabled=True
    )


def _ask(rig: Rig, instance_id: str, sql: str) -> Any:
    with _connect(rig, instance_id) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def _say(rig: Rig, instance_id: str, statements: tuple[str, ...]) -> None:
    """In one session; the engine's own error is an answer, its end is not."""
    with _connect(rig, instance_id) as connection, connection.cursor() as cursor:
        for statement in statements:
            with contextlib.suppress(pymysql.err.MySQLError):
                cursor.execute(statement)
            connection.ping(reconnect=False)
