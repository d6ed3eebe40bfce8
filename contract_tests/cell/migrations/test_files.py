"""Files of the engine's own kind become its data: an RDB, a DuckDB database."""

import subprocess
import time
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
import redis

from contract_tests.cell.backups.backup_calls import back_up
from contract_tests.cell.migrations.migration_calls import (
    UPLOAD,
    begin,
    begun,
    observed,
    path_of,
    send,
    status_is,
    token,
)
from contract_tests.cell.rig import Rig, until

DUCKDB = {"engine": "duckdb"}


def made(rig: Rig, engine: str, **more: Any) -> str:
    engines = rig.get("/v1/cell").json()["engines"]
    found = {each["engine"]: each["versions"] for each in engines}.get(engine)
    if not found:
        pytest.skip(f"no {engine} on this machine")
    return rig.make(engine=engine, engine_version=found[0], **more)


@pytest.fixture
def valkey_id(migrating: Rig) -> str:
    return made(migrating, "valkey")


@pytest.fixture
def duckdb_id(migrating: Rig) -> str:
    return made(migrating, "duckdb")


def keys(rig: Rig, instance_id: str, database: int = 0) -> redis.Redis:
    route, secret = rig.route(instance_id), rig.reveal(instance_id)
    assert route is not None
    given = {"username": secret["username"], "password": secret["password"], "db": database}
    return redis.Redis(unix_socket_path=route["socket"], **given)


def query(rig: Rig, instance_id: str, sql: str) -> Any:
    route, secret = rig.route(instance_id), rig.reveal(instance_id)
    assert route is not None
    with httpx.Client(transport=httpx.HTTPTransport(uds=route["socket"])) as http:
        login = (secret["username"], secret["password"])
        answer = http.post("http://engine/query", json={"sql": sql}, auth=login)
    assert answer.status_code == 200, answer.text
    return answer.json()["rows"]


def rdb(rig: Rig, source_id: str) -> bytes:
    """As an owner takes it from an instance."""
    answer = rig.client().get(f"/v1/dump/{rig.token(source_id, 'dump')}")
    assert answer.status_code == 200, answer.text
    return answer.content


def sent(rig: Rig, instance_id: str, content: bytes, **more: Any) -> str:
    migration_id = begun(rig, instance_id, UPLOAD, **more)
    answer = send(rig, token(rig, instance_id, migration_id), content)
    assert answer.status_code == 200, answer.text
    return migration_id


def database(folder: Path, *statements: str) -> bytes:
    path = folder / "file.duckdb"
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path.read_bytes()


@pytest.fixture
def dumped(migrating: Rig) -> bytes:
    """Of a Redis where there is one: its files are Valkey's, too."""
    engines = {each["engine"] for each in migrating.get("/v1/cell").json()["engines"]}
    source_id = made(migrating, "redis" if "redis" in engines else "valkey")
    with keys(migrating, source_id) as first, keys(migrating, source_id, 3) as third:
        first.mset({f"key {number}": number for number in range(1000)})
        third.hset("hash", mapping={"a": "1", "b": "2"})
        third.set("passing", "1", ex=100_000)
    found = rdb(migrating, source_id)
    migrating.action(source_id, "erase")
    return found


@pytest.mark.timeout(200)
def test_an_rdb_becomes_the_data(migrating: Rig, valkey_id: str, dumped: bytes) -> None:
    before = migrating.reveal(valkey_id)
    migration_id = sent(migrating, valkey_id, dumped)
    seen = status_is(migrating, valkey_id, migration_id, "completed")
    assert seen["preflight"]["source"]["engine"] == "valkey"
    assert seen["preflight"]["source"]["version"].startswith("RDB ")
    assert [each["severity"] for each in seen["preflight"]["findings"]] == ["info"]
    assert seen["progress"]["bytes_done"] == len(dumped)
    compared = seen["verification"]
    assert (compared["tables_compared"], compared["rows_compared"]) == (2, 1002)
    with keys(migrating, valkey_id) as first, keys(migrating, valkey_id, 3) as third:
        assert (first.dbsize(), first.get("key 999")) == (1000, b"999")
        assert third.hgetall("hash") == {b"a": b"1", b"b": b"2"}
        assert 0 < third.ttl("passing") <= 100_000
    assert migrating.reveal(valkey_id)["password"] == before["password"]
    assert not (migrating.home / "instances" / valkey_id / "migration").exists()
    for action in ("pause", "resume"):
        migrating.action(valkey_id, action)
    with keys(migrating, valkey_id) as first:
        assert first.dbsize() == 1000


@pytest.mark.timeout(200)
def test_a_database_becomes_the_data(migrating: Rig, duckdb_id: str, tmp_path: Path) -> None:
    content = database(
        tmp_path,
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.goods AS SELECT range AS n, 'x' || range AS t FROM range(5000)",
        "CREATE VIEW many AS SELECT count(*) AS c FROM shop.goods",
    )
    rehearsal = sent(migrating, duckdb_id, content, dry_run=True)
    status_is(migrating, duckdb_id, rehearsal, "completed")
    assert query(migrating, duckdb_id, "SELECT count(*) FROM duckdb_tables()") == [[0]]
    migration_id = sent(migrating, duckdb_id, content)
    seen = status_is(migrating, duckdb_id, migration_id, "completed")
    assert seen["verification"]["rows_compared"] == 5000
    assert query(migrating, duckdb_id, "SELECT c FROM many") == [[5000]]
    query(migrating, duckdb_id, "INSERT INTO shop.goods VALUES (-1, 'y')")
    again = sent(migrating, duckdb_id, content)
    seen = status_is(migrating, duckdb_id, again, "failed")
    assert "has data already" in seen["reason"]
    assert query(migrating, duckdb_id, "SELECT c FROM many") == [[5001]]


REFUSED = {
    "another file": (b"-- SQL of somebody\n" * 100, "is not one that valkey takes"),
    "cut off": (None, "does not start with it"),
    "changed": (None, "does not start with it"),
    "too new": (b"REDIS9999" + bytes(100), "does not start with it"),
}


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_start_changes_nothing(
    migrating: Rig, valkey_id: str, dumped: bytes, name: str
) -> None:
    content, told = REFUSED[name]
    if name == "cut off":
        content = dumped[: len(dumped) // 2]
    elif name == "changed":
        half = len(dumped) // 2
        content = dumped[:half] + bytes(each ^ 0x55 for each in dumped[half : half + 50])
        content += dumped[half + 50 :]
    assert content is not None
    process = migrating.observe(valkey_id)["started_at"]
    migration_id = sent(migrating, valkey_id, content)
    seen = status_is(migrating, valkey_id, migration_id, "failed")
    assert told in seen["reason"]
    assert migrating.observe(valkey_id)["started_at"] == process, "its engine ran on"
    with keys(migrating, valkey_id) as first:
        assert first.dbsize() == 0
    assert not (migrating.home / "instances" / valkey_id / "migration").exists()


@pytest.mark.timeout(200)
def test_what_was_written_meanwhile_stays(
    migrating: Rig, valkey_id: str, dumped: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with keys(migrating, valkey_id) as first:
        first.set("own", "1")
        refused = sent(migrating, valkey_id, dumped)
        status_is(migrating, valkey_id, refused, "failed")
        assert first.get("own") == b"1"
        first.delete("own")
    status_is(migrating, valkey_id, sent(migrating, valkey_id, dumped), "completed")


@pytest.mark.nightly
def test_what_an_engine_does_not_take_is_told(
    migrating: Rig, valkey_id: str, duckdb_id: str
) -> None:
    for instance_id, source, told in (
        (valkey_id, {"kind": "upload", "format": "duckdb"}, "takes no duckdb"),
        (duckdb_id, {"kind": "upload", "format": "rdb"}, "takes no rdb"),
        (duckdb_id, {"kind": "connection", "format": None}, "takes files only"),
    ):
        answer = begin(migrating, instance_id, source)
        assert answer.status_code == 409, answer.text
        assert told in answer.json()["detail"]


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3, 0.6, 1.0, 1.5])
def test_a_killed_cell_goes_on_or_ends_it(
    migrating: Rig, valkey_id: str, dumped: bytes, after_s: float
) -> None:
    """Never half: all keys are there, or none."""
    migration_id = sent(migrating, valkey_id, dumped)
    subprocess.run(["sleep", str(after_s)], check=True)
    migrating.kill()
    migrating.start()
    until(
        lambda: observed(migrating, valkey_id, migration_id)["status"] in ("completed", "failed"),
        "it has ended",
    )
    migrating.status_is(valkey_id, "running")
    seen = observed(migrating, valkey_id, migration_id)
    with keys(migrating, valkey_id) as first:
        assert first.dbsize() == (1000 if seen["status"] == "completed" else 0)
    assert seen["status"] == "completed", seen


@pytest.mark.timeout(200)
def test_it_is_cancelled_while_it_is_tried(migrating: Rig, valkey_id: str, dumped: bytes) -> None:
    migration_id = sent(migrating, valkey_id, dumped)
    answer = migrating.act("DELETE", path_of(valkey_id, migration_id))
    assert answer.status_code in (200, 202), answer.text
    seen = status_is(migrating, valkey_id, migration_id, "cancelled", "completed")
    with keys(migrating, valkey_id) as first:
        assert first.dbsize() == (0 if seen["status"] == "cancelled" else 1000)
    left = migrating.home / "instances"
    assert not [path for path in left.iterdir() if path.name.startswith("inst_verify_")]


def test_it_is_cancelled_as_it_begins(migrating: Rig, valkey_id: str, dumped: bytes) -> None:
    """While the file is copied for its trial, or the engine only starts."""
    for wait_ms in [0, 2, 5, 10, 20, 30, 40, 50] * 3:
        migration_id = sent(migrating, valkey_id, dumped)
        time.sleep(wait_ms / 1000)
        migrating.act("DELETE", path_of(valkey_id, migration_id))
        status_is(migrating, valkey_id, migration_id, "cancelled")
    assert not (migrating.home / "instances" / valkey_id / "migration").exists()


@pytest.mark.nightly
@pytest.mark.timeout(200)
def test_what_is_archived_goes_on_with_the_file(migrating: Rig, dumped: bytes) -> None:
    """The chain of the data before ends, and nothing of it is told to be lost."""
    instance_id = made(migrating, "valkey", continuous_archiving=True)
    until(lambda: archiving(migrating, instance_id)["newest_at"], "it is archived")
    status_is(migrating, instance_id, sent(migrating, instance_id, dumped), "completed")
    until(lambda: archiving(migrating, instance_id)["newest_at"], "it is archived again")
    assert archiving(migrating, instance_id)["gap"] is None
    assert archiving(migrating, instance_id)["needs_base"]
    migrating.action(instance_id, "erase")


def archiving(rig: Rig, instance_id: str) -> dict[str, Any]:
    return dict(rig.observe(instance_id)["archiving"] or {"newest_at": None})


ENDLESS = b"#!lua name=endless\nwhile true do end\n"


@pytest.mark.nightly
def test_files_that_are_tried_for_long_keep_no_backup_waiting(migrating: Rig) -> None:
    """What is in a file may keep its engine busy; each tenant has places of its own for them."""
    shared = {"tenant": "org_slow", "person": "user_slow"}
    one, two, three = (made(migrating, "valkey", **shared) for _ in "123")
    library = b"\xf5" + bytes([len(ENDLESS)]) + ENDLESS
    rdb = b"REDIS0010" + library + b"\xfe\x00\x00\x01a\x01b\xff" + bytes(8)
    tried = {each: sent(migrating, each, rdb) for each in (one, two)}
    for each in (one, two):
        status_is(migrating, each, tried[each], "preflight")
    time.sleep(3.0)
    began = time.monotonic()
    back_up(migrating, three)
    assert time.monotonic() - began < 20
    for each, migration_id in tried.items():
        assert migrating.act("DELETE", path_of(each, migration_id)).status_code == 200
        status_is(migrating, each, migration_id, "cancelled")
