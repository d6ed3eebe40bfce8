"""An engine that grows past its storage is stopped, says why, and comes back with more storage."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import redis

from cell.engines.driver import Driver
from cell.engines.duckdb import DuckDB
from cell.engines.search import SearchEngine
from cell.instances.hosted import HostedInstance
from cell.layout import Layout
from cell.runtime.folder_sizes import FILE_BYTES_MIN, size_bytes
from cell.runtime.host import Host
from cell.specification import Size
from contract_tests.cell.rig import Rig, running, until
from contract_tests.engines.conftest import UID
from contract_tests.engines.fillers import (
    MB,
    MODEST,
    ROUNDS,
    SORT,
    TENANTS,
    TINY,
    MariaDB,
    Postgres,
    Resp,
    order,
)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("ceiling") / "cell") as made:
        yield made


@pytest.mark.parametrize("make", [DuckDB, SearchEngine])
def test_what_stays_of_the_data_may_be_written_once_more(
    tmp_path: Path, make: Callable[[Host], Driver]
) -> None:
    """DuckDB does so after a deletion, search after a change of settings, and either when full."""
    layout = Layout.make(tmp_path / "cell")
    driver = make(Host(str(layout.home), "open", (), confine=False, key=b"k"))
    unused: Any = None
    instance = HostedInstance(unused, unused, driver)
    for storage_bytes in (10**9, 10**12):
        size = Size("s0", 1.0, 10**9, storage_bytes, 10)
        assert instance.ceiling_of(size) >= 2 * storage_bytes


def full(rig: Rig, instance_id: str, engine: str) -> dict[str, Any] | None:
    """Where what was temporary was enough to be stopped, it runs again, and is filled again."""
    seen = rig.observe(instance_id)
    if seen["status"] == "running":
        TENANTS[engine](rig, instance_id).fill()
    return seen if seen["status"] == "failed" else None


@pytest.mark.nightly
def test_what_grows_past_its_storage_is_stopped_until_it_has_more(rig: Rig, host: Host) -> None:
    engine = "postgres"
    neighbour = rig.make()
    password, pid = rig.reveal(neighbour)["password"], rig.engine_pid(neighbour)
    instance_id = order(rig, host, engine, size=TINY)
    written = TENANTS[engine](rig, instance_id).fill()
    # At the limit its transactions end, and it asks to write again.
    assert 0 < written < ROUNDS
    seen = until(lambda: full(rig, instance_id, engine), "it is stopped for good", 120)
    assert "the storage is full" in seen["status_reason"]
    assert "of 0.06 GB" in seen["status_reason"]
    assert "resize" in seen["status_reason"]
    # Above the ceiling it was started once more, to be freed, with more room; what a busy
    # machine lets through between two looks comes on top.
    assert seen["storage_bytes"] < 3 * Size.parse(TINY).ceiling_bytes

    again = rig.act("POST", f"/v1/instances/{instance_id}/actions/resume")
    assert again.status_code == 409
    assert "the storage is full" in again.json()["detail"]
    assert rig.reveal(instance_id)["username"] == "app"
    kept = rig.action(instance_id, "snapshot", {"label": "branch"})["snapshot_id"]
    assert kept

    assert rig.query(neighbour, password, "SELECT 1").json()["rows"] == [[1]]
    assert rig.engine_pid(neighbour) == pid

    larger = {"size": {**TINY, "name": "s0", "storage_bytes": 20 * 10**9}}
    assert rig.action(instance_id, "resize", larger)["status"] == "running"
    assert TENANTS[engine](rig, instance_id).count() >= written
    for each in (instance_id, neighbour):
        rig.action(each, "erase")


@pytest.mark.nightly
def test_mariadb_refuses_what_adds_and_not_what_frees(rig: Rig, host: Host) -> None:
    instance_id = order(rig, host, "mariadb", size=MODEST)
    tenant = MariaDB(rig, instance_id)
    tenant.ask("CREATE PROCEDURE add_one() INSERT INTO filled VALUES ('one')")
    written = tenant.fill()
    assert 0 < written < ROUNDS
    until(lambda: tenant.refuses("INSERT INTO filled VALUES ('more')"), "it is full")
    for statement in (
        *("CREATE TABLE more (x TEXT)", "UPDATE filled SET x = ''", "ALTER TABLE filled ADD y INT"),
        *("CREATE TEMPORARY TABLE more (x TEXT)", "REPLACE INTO filled VALUES ('')"),
        *("CALL add_one()", "CREATE DATABASE more", "CREATE TABLE more LIKE filled"),
    ):
        assert tenant.refuses(statement), statement
    seen = rig.observe(instance_id)
    assert seen["status"] == "running"
    assert "the storage is full" in seen["status_reason"]
    assert seen["restarts"] == 0
    # A rotation and a start give back no rights.
    tenant.password = rig.rotate(instance_id)["password"]
    assert tenant.refuses("INSERT INTO filled VALUES ('more')")
    assert tenant.count() >= written

    # The rights are taken anew after a rotation, and sessions that had them end with that.
    until(lambda: tenant.does("DELETE FROM filled LIMIT 1"), "rows can be deleted")
    until(lambda: tenant.does("DROP TABLE IF EXISTS filled"), "tables can be dropped")
    until(lambda: not tenant.refuses("CREATE TABLE filled (x TEXT)"), "there is room")
    assert rig.status_is(instance_id, "running")
    until(lambda: rig.observe(instance_id)["status_reason"] is None, "nothing is wrong")

    tenant.fill()
    until(lambda: tenant.refuses("INSERT INTO filled VALUES ('more')"), "it is full again")
    larger = {"size": {**MODEST, "storage_bytes": 20 * 10**9}}
    assert rig.action(instance_id, "resize", larger)["status"] == "running"
    until(lambda: not tenant.refuses("INSERT INTO filled VALUES ('more')"), "it is larger")
    rig.action(instance_id, "erase")


@pytest.mark.nightly
def test_what_an_open_transaction_kept_is_given_back(rig: Rig, host: Host) -> None:
    """One that was forgotten keeps all that others change, until there is no room for more."""
    instance_id = order(rig, host, "mariadb", size=MODEST)
    tenant = MariaDB(rig, instance_id)
    change = "UPDATE kept SET x = REPEAT(CHAR(65 + RAND() * 25), 200)"
    with tenant.connect() as forgotten, forgotten.cursor() as cursor:
        cursor.execute("CREATE TABLE kept (n INT PRIMARY KEY, x VARCHAR(200))")
        cursor.execute("INSERT INTO kept SELECT seq, REPEAT('x', 200) FROM seq_1_to_50000")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        until(lambda: tenant.refuses(change), "there is no room for more")
    until(lambda: not tenant.refuses(change), "it is given back")
    assert tenant.does("SELECT 1 FROM kept LIMIT 1")
    rig.action(instance_id, "erase")


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ["redis", "valkey"])
def test_redis_refuses_what_adds_and_not_what_frees(rig: Rig, host: Host, engine: str) -> None:
    instance_id = order(rig, host, engine, size=TINY)
    tenant = Resp(rig, instance_id)
    written = tenant.fill()
    assert 0 < written < ROUNDS

    def refuses() -> bool:
        try:
            with tenant.client() as client:
                client.set("more", "1")
        except redis.exceptions.NoPermissionError:
            return True
        except redis.exceptions.RedisError:
            pass
        return False

    # What a busy machine lets through between two looks may have ended it once.
    until(refuses, "it is full", 120)
    seen = rig.observe(instance_id)
    assert seen["status"] == "running"
    assert "the storage is full" in seen["status_reason"]
    assert tenant.count() >= written
    with tenant.client() as client:
        client.delete(*(f"key-{number}" for number in range(written)))
    until(lambda: not refuses(), "there is room")
    until(lambda: rig.observe(instance_id)["storage_bytes"] < 60 * MB, "its log is short")
    assert rig.status_is(instance_id, "running")

    tenant.fill()
    until(refuses, "it is full again", 120)
    larger = {"size": {**TINY, "storage_bytes": 20 * 10**9}}
    assert rig.action(instance_id, "resize", larger)["status"] == "running"
    until(lambda: not refuses(), "it is larger")
    rig.action(instance_id, "erase")


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ["redis", "valkey"])
def test_a_log_that_grows_faster_than_it_is_rewritten_ends_nobody(
    rig: Rig, host: Host, engine: str
) -> None:
    """Little data, overwritten with all that there is of a CPU."""
    slow = {**TINY, "vcpu": 0.15, "storage_bytes": 300 * MB}
    ceiling = Size.parse(slow).ceiling_bytes
    instance_id = order(rig, host, engine, size=slow)
    script = """for i = 1, 20 do redis.call('SET', i, ARGV[1]) end"""
    value = os.urandom(4 * MB)
    written, largest = 0, 0
    with Resp(rig, instance_id).client() as client:
        while written < 2 * ceiling:
            client.eval(script, 0, value)
            written += 20 * len(value)
            seen = rig.observe(instance_id)
            largest = max(largest, seen["storage_bytes"])
            assert (seen["status"], seen["restarts"]) == ("running", 0)
    assert largest < ceiling
    rig.action(instance_id, "erase")


@pytest.mark.nightly
def test_a_file_without_a_name_counts(rig: Rig, host: Host) -> None:
    instance_id = order(rig, host, "mariadb", size=TINY)
    with (
        pytest.raises(pymysql.err.MySQLError),
        MariaDB(rig, instance_id).connect() as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(SORT)
    told = until(lambda: rig.observe(instance_id)["status_reason"], "it is started again")
    assert "the storage is full" in told
    assert rig.status_is(instance_id, "running")
    rig.action(instance_id, "erase")


@pytest.mark.nightly
def test_what_the_next_start_removes_keeps_no_server_from_it(rig: Rig, host: Host) -> None:
    """Exported snapshots are files, and too many for a server to remove while it ends."""
    instance_id = order(rig, host, "postgres", size=TINY)
    tenant = Postgres(rig, instance_id)
    layout = Layout.make(rig.home)
    snapshots = layout.site(instance_id, UID).data.outside / "pg_snapshots"
    with tenant.connect() as connection, contextlib.suppress(psycopg.Error):
        connection.execute("SELECT count(pg_export_snapshot()) FROM generate_series(1, 100000)")
    told = until(lambda: rig.observe(instance_id)["status_reason"], "it is started again")
    assert "the storage is full" in told
    until(lambda: rig.status_is(instance_id, "running"), "it runs again")
    assert list(snapshots.iterdir()) == []
    rig.action(instance_id, "erase")


@pytest.mark.nightly
def test_what_lies_beside_the_sockets_counts_and_goes_with_the_engine(rig: Rig, host: Host) -> None:
    """As an engine would write there that somebody has taken over."""
    instance_id = order(rig, host, "valkey", size=TINY)
    route = rig.route(instance_id)
    assert route is not None
    left = Path(route["socket"]).resolve().with_name("filled")
    with left.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 500 * MB)
    told = until(lambda: rig.observe(instance_id)["status_reason"], "it is started again")
    assert "the storage is full" in told
    until(lambda: rig.status_is(instance_id, "running"), "it runs again")
    assert not left.exists()
    rig.action(instance_id, "erase")


def test_empty_files_use_storage_too(tmp_path: Path) -> None:
    """As a million empty tables would take all inodes of the disk that tenants share."""
    (tmp_path / "folder").mkdir()
    for number in range(100):
        (tmp_path / "folder" / f"{number}").touch()
    assert size_bytes(tmp_path) == 101 * FILE_BYTES_MIN
