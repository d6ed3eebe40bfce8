"""A running Redis or Valkey is followed until the cutover: nothing is lost, nothing comes twice."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from contract_tests.cell.migrations import redis_server
from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    begun,
    connect,
    observed,
    status_is,
)
from contract_tests.cell.migrations.redis_server import PASSWORD, RedisServer
from contract_tests.cell.migrations.redis_writer import everything, writing
from contract_tests.cell.migrations.sync_calls import (
    cancelled,
    come_to,
    completed,
    cut_over,
    level,
)
from contract_tests.cell.migrations.test_files import keys, made
from contract_tests.cell.rig import Rig, until

DATABASES = (0, 5, 7, 8, 9)
SIZE = {
    "name": "small",
    "vcpu": 0.5,
    "memory_bytes": 2**29,
    "storage_bytes": 100 * 10**6,
    "connections_max": 20,
}


ENGINES = [
    ("redis", "valkey"),
    pytest.param(("redis", "redis"), marks=pytest.mark.nightly),
    pytest.param(("valkey", "valkey"), marks=pytest.mark.nightly),
]


@pytest.fixture(scope="module", params=ENGINES, ids=" into ".join)
def engines(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Of the source, and of the instance."""
    source, target = request.param
    return source, target


@pytest.fixture(scope="module")
def engine(engines: tuple[str, str]) -> str:
    return engines[0]


@pytest.fixture(scope="module")
def server(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    folder = tmp_path_factory.mktemp("redis") / "server"
    with redis_server.running(folder, diskless=engine == "redis", engine=engine) as made:
        yield made


@pytest.fixture
def source(server: RedisServer) -> RedisServer:
    with server.client() as client:
        client.flushall()
        client.function_flush()
        client.mset({f"key {number}": "x" * 100 for number in range(5_000)})
    with server.client(8) as eighth:
        eighth.hset("hash", mapping={"a": "1"})
    return server


@pytest.fixture
def target_id(migrating: Rig, engines: tuple[str, str]) -> Iterator[str]:
    found = made(migrating, engines[1], size=SIZE)
    yield found
    migrating.action(found, "erase")


def by(source: RedisServer, user: str = "", password: str = PASSWORD) -> dict[str, str]:
    """How the cell connects: by TLS, where the server has it."""
    uri = source.uri(user, tls=source.has_tls, password=password)
    return {"uri": uri} if source.has_tls else {"uri": uri, "tls": "off"}


def synced(rig: Rig, instance_id: str, source: RedisServer) -> str:
    migration_id = begun(rig, instance_id, CONNECTION, "copy_and_sync")
    connect(rig, instance_id, migration_id, source, **by(source))
    status_is(rig, instance_id, migration_id, "syncing")
    return migration_id


def assert_equal(rig: Rig, instance_id: str, source: RedisServer) -> None:
    for database in DATABASES:
        with source.client(database) as there, keys(rig, instance_id, database) as here:
            assert everything(here) == everything(there), database
    with source.client() as there, keys(rig, instance_id) as here:
        assert _functions(here) == _functions(there)
        replicas = there.info("replication")["connected_slaves"]
        assert replicas == 0, "nothing is left there"


def _functions(client: Any) -> list[str]:
    return sorted(str(each) for each in client.function_list())


@pytest.mark.timeout(300)
def test_a_source_is_followed(migrating: Rig, target_id: str, source: RedisServer) -> None:
    with writing(source) as ended:
        migration_id = synced(migrating, target_id, source)
        with source.client() as client:
            before = int(client.get("counter"))
            until(lambda: int(client.get("counter")) > before + 200, "it is written on")
        with keys(migrating, target_id) as here:
            assert here.dbsize() == 0, "the instance stays as it is until the cutover"
        ended.set()
        level(migrating, target_id, migration_id)
        seen = completed(migrating, target_id, migration_id)
    with source.client() as client:
        assert seen["verification"]["rows_compared"] > client.dbsize()
    assert "keys were compared" in seen["verification"]["notes"][0]
    assert not seen["verification"]["notes"][0].startswith("the contents of 0")
    assert_equal(migrating, target_id, source)
    assert not (migrating.home / "instances" / target_id / "migration").exists()


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_who_writes_on_is_told(migrating: Rig, target_id: str, source: RedisServer) -> None:
    migration_id = synced(migrating, target_id, source)
    with writing(source):
        cut_over(migrating, target_id, migration_id)
        told = "was written to during the cutover"
        seen = until(
            lambda: refused(migrating, target_id, migration_id, told), "it is syncing again"
        )
        assert "in database" in seen["reason"]
    with keys(migrating, target_id) as here:
        assert here.dbsize() == 0
        here.set("mine", 1)
        cut_over(migrating, target_id, migration_id)
        told = "data was written into the instance"
        until(lambda: refused(migrating, target_id, migration_id, told), "it is told")
        here.flushall()
    completed(migrating, target_id, migration_id)
    assert_equal(migrating, target_id, source)


def refused(rig: Rig, instance_id: str, migration_id: str, told: str) -> dict[str, Any] | None:
    seen = observed(rig, instance_id, migration_id)
    assert seen["status"] in {"syncing", "cutting_over", "verifying"}, seen
    is_told = seen["status"] == "syncing" and told in (seen["reason"] or "")
    return seen if is_told else None


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_killed_cell_goes_on(migrating: Rig, target_id: str, source: RedisServer) -> None:
    with writing(source, pause_s=0.0) as ended:
        migration_id = synced(migrating, target_id, source)
        with source.client() as client:
            fulls = client.info("stats")["sync_full"]
            for _ in range(3):
                before = int(client.get("counter"))
                until(lambda: int(client.get("counter")) > before + 100, "it is written on")  # noqa: B023
                migrating.kill()
                migrating.start()
                migrating.status_is(target_id, "running")
            ended.set()
            level(migrating, target_id, migration_id)
            assert client.info("stats")["sync_full"] == fulls, "it went on where it was"
        cut_over(migrating, target_id, migration_id)
        migrating.kill()
        migrating.start()
        status_is(migrating, target_id, migration_id, "completed")
    assert_equal(migrating, target_id, source)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_connection_that_breaks_off(migrating: Rig, target_id: str, source: RedisServer) -> None:
    with writing(source) as ended:
        migration_id = synced(migrating, target_id, source)
        with source.client() as client:
            fulls, partial = (
                client.info("stats")[f"sync_{each}"] for each in ("full", "partial_ok")
            )
            for count in range(1, 4):
                client.execute_command("CLIENT", "KILL", "TYPE", "replica")
                until(
                    lambda: client.info("stats")["sync_partial_ok"] >= partial + count,  # noqa: B023
                    "it goes on",
                )
            assert client.info("stats")["sync_full"] == fulls
            # What a server that was started anew says: its history has another id.
            client.execute_command("CLIENT", "KILL", "TYPE", "replica")
            client.execute_command("DEBUG", "CHANGE-REPL-ID")
            until(lambda: client.info("stats")["sync_full"] > fulls, "it is copied anew")
        ended.set()
        level(migrating, target_id, migration_id)
        completed(migrating, target_id, migration_id)
    assert_equal(migrating, target_id, source)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_source_that_starts_anew(migrating: Rig, target_id: str, source: RedisServer) -> None:
    with writing(source) as ended:
        migration_id = synced(migrating, target_id, source)
        with source.client() as client:
            client.save()
        source.kill()
        until(lambda: observed(migrating, target_id, migration_id)["reason"], "it is told")
        source.start()
        with source.client() as client:
            until(lambda: client.info("replication")["connected_slaves"] == 1, "it is copied anew")
            before = int(client.get("counter"))
            until(lambda: int(client.get("counter")) > before + 50, "it is written on")
        ended.set()
        level(migrating, target_id, migration_id)
        completed(migrating, target_id, migration_id)
    assert_equal(migrating, target_id, source)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_cancel_leaves_nothing(migrating: Rig, target_id: str, source: RedisServer) -> None:
    """Whatever it is doing."""
    with writing(source):
        for wanted in ("preflight", "syncing", "cutting_over", "verifying"):
            migration_id = begun(migrating, target_id, CONNECTION, "copy_and_sync")
            connect(migrating, target_id, migration_id, source, **by(source))
            come_to(migrating, target_id, migration_id, wanted)
            cancelled(migrating, target_id, migration_id)
            with keys(migrating, target_id) as here:
                assert (here.dbsize(), here.function_list()) == (0, [])
            assert not (migrating.home / "instances" / target_id / "migration").exists()
            with source.client() as client:
                until(
                    lambda: client.info("replication")["connected_slaves"] == 0,
                    "nothing is left at the source",
                )


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_long_log_is_condensed(migrating: Rig, target_id: str, source: RedisServer) -> None:
    """Many times what the instance has room for comes, and little of it stays."""
    migration_id = synced(migrating, target_id, source)
    folder = migrating.home / "instances" / target_id / "migration"
    with source.client() as client:
        for number in range(60):
            client.set("large", str(number % 10) * 2 * 10**6)
            client.incr("counter")
    until(lambda: _taken(folder) < 64 * 10**6, "it is condensed")
    level(migrating, target_id, migration_id)
    completed(migrating, target_id, migration_id)
    assert_equal(migrating, target_id, source)


def _taken(folder: Any) -> int:
    found = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_what_would_go_wrong_is_found_before(
    migrating: Rig, target_id: str, source: RedisServer
) -> None:
    with source.client() as client:
        rights = ("+ping", "+psync", "+replconf")
        client.execute_command("ACL", "SETUSER", "copier", "reset", "on", ">pw", *rights)
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.set("passing", 1, ex=1000)
    more = by(source, "copier", "pw")
    migration_id = begun(migrating, target_id, CONNECTION, "copy_and_sync")
    connect(migrating, target_id, migration_id, source, **more)
    seen = status_is(migrating, target_id, migration_id, "failed")
    assert "+info" in seen["preflight"]["findings"][0]["remedy"]
    with source.client() as client:
        client.execute_command("ACL", "SETUSER", "copier", "+info")
    migration_id = begun(migrating, target_id, CONNECTION, "copy_and_sync", dry_run=True)
    connect(migrating, target_id, migration_id, source, **more)
    seen = status_is(migrating, target_id, migration_id, "completed")
    codes = {each["code"] for each in seen["preflight"]["findings"]}
    assert {"evicts", "expiring", "version", "format"} <= codes
    with source.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
        assert client.info("replication")["connected_slaves"] == 0
    assert not (migrating.home / "instances" / target_id / "migration").exists()
    migration_id = begun(migrating, target_id, CONNECTION, "copy_and_sync")
    connect(migrating, target_id, migration_id, source, **more)
    status_is(migrating, target_id, migration_id, "syncing")
    seen = completed(migrating, target_id, migration_id)
    assert (
        "the contents of 0 keys were compared; the source refused"
        in seen["verification"]["notes"][0]
    )


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_replica_that_is_promoted_goes_on(
    migrating: Rig, target_id: str, source: RedisServer, engine: str, tmp_path: Path
) -> None:
    folder = tmp_path / "replica"
    with redis_server.running(folder, diskless=True, engine=engine) as replica:
        with replica.client() as client:
            client.config_set("masterauth", PASSWORD)
            client.execute_command("REPLICAOF", "127.0.0.1", str(source.port))
            until(lambda: client.info("replication")["master_link_status"] == "up", "it is level")
        migration_id = synced(migrating, target_id, replica)
        with source.client() as first:
            for _ in range(100):
                first.incr("counter")
            first.wait(1, 10_000)
        with replica.client() as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
            fulls = client.info("stats")["sync_full"]
            for _ in range(100):
                client.incr("counter")
            level(migrating, target_id, migration_id)
            completed(migrating, target_id, migration_id)
            assert client.info("stats")["sync_full"] == fulls
        assert_equal(migrating, target_id, replica)
