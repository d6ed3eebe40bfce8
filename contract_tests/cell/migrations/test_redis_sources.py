"""A running Redis becomes the data of a Valkey, or the reason is told and nothing is changed."""

import asyncio
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from cell.migrations.redis.source import ServerSource
from contract_tests.by_day import one_in
from contract_tests.cell.migrations import redis_server
from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    begun,
    connect,
    send,
    status_is,
    token,
)
from contract_tests.cell.migrations.redis_server import RedisServer
from contract_tests.cell.migrations.test_files import keys, made
from contract_tests.cell.rig import Rig

SMALL = {
    "name": "small",
    "vcpu": 0.5,
    "memory_bytes": 2**29,
    "storage_bytes": 100 * 10**6,
    "connections_max": 20,
}


@pytest.fixture(scope="module", params=[True, False], ids=["diskless", "by disk"])
def source(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer]:
    folder = tmp_path_factory.mktemp("redis") / "server"
    with redis_server.running(folder, diskless=request.param) as server:
        with server.client() as first, server.client(5) as fifth:
            first.mset({f"key {number}": "x" * 100 for number in range(20_000)})
            fifth.rpush("list", *range(100))
            first.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read", "+ping")
            first.execute_command(
                *("ACL", "SETUSER", "copier", "on", ">pw", "+ping", "+psync", "+replconf")
            )
        yield server


@pytest.fixture
def valkey_id(migrating: Rig) -> Iterator[str]:
    found = made(migrating, "valkey", size=SMALL)
    yield found
    migrating.action(found, "erase")


def migrated(rig: Rig, instance_id: str, uri: str, **more: object) -> str:
    migration_id = begun(rig, instance_id, CONNECTION)
    answer = send(rig, token(rig, instance_id, migration_id), {"uri": uri, **more})
    assert answer.status_code == 200, answer.text
    return migration_id


@pytest.mark.timeout(200)
def test_a_running_server_is_copied(migrating: Rig, valkey_id: str, source: RedisServer) -> None:
    uri = source.uri("copier", password="pw")
    migration_id = migrated(migrating, valkey_id, uri, ca_pem=source.ca_pem)
    seen = status_is(migrating, valkey_id, migration_id, "completed")
    assert seen["preflight"]["source"]["version"].startswith("RDB ")
    assert seen["verification"]["rows_compared"] == 20_001
    with keys(migrating, valkey_id) as first, keys(migrating, valkey_id, 5) as fifth:
        assert (first.dbsize(), first.get("key 7")) == (20_000, b"x" * 100)
        assert fifth.llen("list") == 100
    with source.client() as first:
        assert first.info("replication")["connected_slaves"] == 0, "nothing is left there"
        assert first.dbsize() == 20_000


@pytest.mark.nightly
@pytest.mark.timeout(200)
def test_what_the_source_refuses_is_told(
    migrating: Rig, valkey_id: str, source: RedisServer
) -> None:
    secret = "wrong secret"
    for uri, more, told in (
        (source.uri(password=secret), {"ca_pem": source.ca_pem}, "refused AUTH"),
        (source.uri("reader", password="pw"), {"ca_pem": source.ca_pem}, "+psync"),
        (source.uri(), {}, "certificate of the source is not valid"),
    ):
        migration_id = migrated(migrating, valkey_id, uri, **more)
        seen = status_is(migrating, valkey_id, migration_id, "failed")
        assert told in seen["reason"]
        assert secret not in str(seen)
    with keys(migrating, valkey_id) as first:
        assert first.dbsize() == 0
    plain = migrated(migrating, valkey_id, source.uri(tls=False), tls="off")
    status_is(migrating, valkey_id, plain, "completed")


@pytest.mark.nightly
@pytest.mark.timeout(200)
def test_a_source_without_tls_is_told(migrating: Rig, valkey_id: str, source: RedisServer) -> None:
    migration_id = migrated(migrating, valkey_id, source.uri(tls=False))
    seen = status_is(migrating, valkey_id, migration_id, "failed")
    assert "say that TLS is off" in seen["reason"]


def test_a_uri_of_another_engine_is_refused(migrating: Rig, valkey_id: str) -> None:
    migration_id = begun(migrating, valkey_id, CONNECTION)
    for uri in ("postgresql://a:b@127.0.0.1/c", "redis://a:b@127.0.0.1,127.0.0.2", "redis://:b@"):
        answer = send(migrating, token(migrating, valkey_id, migration_id), {"uri": uri})
        assert answer.status_code == 422, answer.text


ENDLESS, SILENT = object(), object()
ANSWERS: dict[str, tuple[list[object], str]] = {
    "no length": ([b"+FULLRESYNC a 1\r\n", b"hello\r\n"], "as Redis and Valkey do"),
    "a huge length": ([b"+FULLRESYNC a 1\r\n", b"$99999999999999\r\n"], "the storage is"),
    "a negative length": ([b"+FULLRESYNC a 1\r\n", b"$-5\r\n"], "as Redis and Valkey do"),
    "a length of many digits": ([b"+FULLRESYNC a 1\r\n", b"$" + b"9" * 5000 + b"\r\n"], "as Redis"),
    "a short mark": ([b"+FULLRESYNC a 1\r\n", b"$EOF:abc\r\n"], "as Redis and Valkey do"),
    "it ends": ([b"+FULLRESYNC a 1\r\n", b"$1000\r\nREDIS0011"], "ended before all had come"),
    "no RDB": ([b"+FULLRESYNC a 1\r\n", b"$5\r\nhello"], "is not one that valkey takes"),
    "a long line": ([b"+" + b"x" * 600_000], "broke off"),
    "an error": ([b"-ERR \x1b[31mno\r\n"], "refused PSYNC"),
    "it says nothing": ([SILENT], "said nothing for"),
    "it never ends": ([b"+FULLRESYNC a 1\r\n", b"$EOF:" + b"m" * 40 + b"\r\n", ENDLESS], "storage"),
}


@contextmanager
def speaking(parts: list[object]) -> Iterator[int]:
    """A server that takes every login, and answers PSYNC with these parts."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            for _ in range(2):
                self.request.recv(4096)
                self.request.sendall(b"+OK\r\n")
            self.request.recv(4096)
            for part in parts:
                if part is SILENT:
                    ended.wait(30)
                elif part is ENDLESS:
                    block = bytes(1 << 20)
                    while not ended.is_set():
                        self.request.sendall(block)
                else:
                    assert isinstance(part, bytes)
                    self.request.sendall(part)

    ended = threading.Event()
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            ended.set()
            server.shutdown()


def test_a_source_of_empty_lines_holds_nobody_up() -> None:
    lines = 10

    async def turns_of_others() -> int:
        reader = asyncio.StreamReader()
        reader.feed_data(b"\r\n" * lines + b"$5\r\n")
        listening = asyncio.create_task(ServerSource(reader, cast("Any", None), 10.0).content())
        turns = 0
        while not listening.done():
            turns += 1
            await asyncio.sleep(0)
        assert await listening == b"$5"
        return turns

    assert asyncio.run(turns_of_others()) > lines


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", one_in(3, ANSWERS))
def test_a_hostile_source_changes_nothing(migrating: Rig, valkey_id: str, name: str) -> None:
    parts, told = ANSWERS[name]
    with speaking(parts) as port:
        migration_id = begun(migrating, valkey_id, CONNECTION)
        server = type("Server", (), {"uri": f"redis://127.0.0.1:{port}", "ca_pem": None})
        connect(migrating, valkey_id, migration_id, server, tls="off")
        seen = status_is(migrating, valkey_id, migration_id, "failed")
    assert told in seen["reason"], seen["reason"]
    assert "\x1b" not in seen["reason"]
    with keys(migrating, valkey_id) as first:
        assert first.dbsize() == 0
    assert not (migrating.home / "instances" / valkey_id / "migration").exists()
