"""What a source sends its replicas: taken byte by byte, or refused for what it is."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cell.migrations.redis.journal import Journal
from cell.migrations.redis.stream import (
    CommandStream,
    KnownCommand,
    StreamError,
    comment,
    known_commands,
)
from contract_tests.cell.migrations import redis_server
from contract_tests.cell.migrations.migration_calls import CONNECTION, begun, connect, status_is
from contract_tests.cell.migrations.redis_server import RedisServer
from contract_tests.cell.migrations.replicating_source import (
    ReplicatingSource,
    command,
    replicating,
)
from contract_tests.cell.migrations.sync_calls import cut_over
from contract_tests.cell.migrations.test_files import keys, made
from contract_tests.cell.rig import Rig, until

VALUE_BYTES = 1000
PING, GETACK = command("PING"), command("REPLCONF", "GETACK", "*")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server.running(tmp_path_factory.mktemp("redis") / "server", diskless=True) as made:
        yield made


@pytest.fixture(scope="module")
def known(server: RedisServer) -> dict[bytes, KnownCommand]:
    with server.client() as client:
        client.response_callbacks.clear()
        return known_commands(_texts(client.execute_command("COMMAND")))


@pytest.fixture(scope="module")
def rdb(server: RedisServer) -> bytes:
    with server.client() as client:
        client.set("before", 1)
        client.save()
    return (server.folder / "dump.rdb").read_bytes()


def _texts(told: Any) -> Any:
    if isinstance(told, list | tuple | set):
        return [_texts(each) for each in told]
    return told.decode() if isinstance(told, bytes) else str(told)


REFUSED: dict[str, tuple[bytes, str]] = {
    "settings": (command("CONFIG", "SET", "dir", "/"), "CONFIG SET: the owner"),
    "users": (command("ACL", "SETUSER", "x", "on"), "ACL SETUSER: the owner"),
    "another master": (command("SLAVEOF", "127.0.0.1", "1"), "SLAVEOF: the owner"),
    "the same": (command("replicaof", "127.0.0.1", "1"), "REPLICAOF: the owner"),
    "an end": (command("SHUTDOWN", "NOSAVE"), "SHUTDOWN: the owner"),
    "debugging": (command("DEBUG", "SEGFAULT"), "DEBUG: the owner"),
    "a module": (command("MODULE", "LOAD", "/x.so"), "MODULE LOAD: the owner"),
    "another server": (command("MIGRATE", "h", "1", "k", "0", "1"), "MIGRATE: the owner"),
    "a slot": (command("RESTORE-ASKING", "k", "0", "x"), "RESTORE-ASKING: the owner"),
    "a library's copy": (command("FUNCTION", "RESTORE", "x"), "FUNCTION RESTORE: the owner"),
    "code": (command("EVAL", "return 1", "0"), "EVAL: the source has its replicas run"),
    "a read": (command("GET", "k"), "GET: the owner"),
    "a login": (command("AUTH", "x"), "AUTH: the owner"),
    "what is unknown": (command("JSON.SET", "k", "$", "1"), "JSON.SET: the engine"),
    "an escape": (command("\x1b[31m"), "does not know it"),
    "too few words": (command("SET", "k"), "SET: it has 1 arguments"),
    "too many": (command("INCR", "k", "x"), "INCR: it has 2 arguments"),
    "a part of one": (command("XGROUP"), "XGROUP: the owner"),
    "no part of one": (command("XGROUP", "NONE", "k"), "XGROUP NONE: the engine"),
    "a number of words": (b"*9999999\r\n", "9999999 words"),
    "many digits": (b"*" + b"9" * 5000, "no Redis or Valkey sends"),
    "no words": (b"*0\r\n", "no Redis or Valkey sends"),
    "a negative number": (b"*-1\r\n", "no Redis or Valkey sends"),
    "another text": (b"SET k v\r\n", "no Redis or Valkey sends"),
    "another type": (b"*1\r\n:5\r\n", "no Redis or Valkey sends"),
    "a large value": (command("SET", "k", b"x" * (VALUE_BYTES + 1)), "1001 bytes"),
    "a large name": (command("x" * 500), "does not know it"),
    "a transaction in another": (command("MULTI") + command("MULTI"), "wrong place"),
    "an end of none": (command("EXEC"), "wrong place"),
    "a database too many": (command("SELECT", "16"), "its database 16; an instance has 16"),
    "no database": (command("SELECT", "-1"), "no number"),
    "many databases": (command("SELECT", "9" * 60), "no number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_taken(known: dict[bytes, KnownCommand], name: str) -> None:
    content, told = REFUSED[name]
    stream = CommandStream(known, VALUE_BYTES)
    with pytest.raises(StreamError) as caught:
        stream.feed(command("SET", "k", "v") + content)
    assert told in str(caught.value)
    assert "\x1b" not in str(caught.value)
    with pytest.raises(StreamError):
        _by_bytes(CommandStream(known, VALUE_BYTES), content)


def _by_bytes(stream: CommandStream, content: bytes) -> list[tuple[int, int]]:
    return [tuple(span) for byte in content for span in stream.feed(bytes([byte]))]  # type: ignore[misc]


def test_where_commands_end_does_not_depend_on_blocks(known: dict[bytes, KnownCommand]) -> None:
    choice = random.Random(3)
    every = [
        command("SET", "k", bytes(choice.randrange(256) for _ in range(300)), "PXAT", "1"),
        PING,
        GETACK,
        command("publish", "c", b"\r\n*1\r\n" * 100),
        command("SELECT", "3"),
        command("MULTI") + command("INCR", "k") + command("SELECT", "4") + command("EXEC"),
        command("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"),
        command("DEL", "k"),
        command("FUNCTION", "LOAD", "#!lua name=x\n"),
    ]
    content = b"".join(choice.choice(every) for _ in range(300))
    whole = CommandStream(known, VALUE_BYTES)
    spans = [tuple(span) for span in whole.feed(content)]
    assert whole.is_whole
    assert whole.fed == len(content)
    for start, end in spans:
        assert content[start:end] in {PING, GETACK, every[3]}
    assert _by_bytes(CommandStream(known, VALUE_BYTES), content) == spans
    for _ in range(20):
        stream, at, found = CommandStream(known, VALUE_BYTES), 0, []
        while at < len(content):
            size = choice.randrange(1, 700)
            found += [tuple(span) for span in stream.feed(content[at : at + size])]
            at += size
        assert (found, stream.whole, stream.database) == (spans, len(content), whole.database)


def test_a_transaction_counts_as_a_whole(known: dict[bytes, KnownCommand]) -> None:
    stream = CommandStream(known, VALUE_BYTES)
    before = command("SELECT", "2") + command("SET", "k", "v")
    stream.feed(before + command("MULTI") + command("SELECT", "7") + command("INCR", "k"))
    assert (stream.whole, stream.database, stream.is_whole) == (len(before), 2, False)
    stream.feed(command("EXEC"))
    assert (stream.is_whole, stream.database) == (True, 7)
    assert stream.changed == "INCR in database 7"


def test_what_expires_is_not_what_is_written(known: dict[bytes, KnownCommand]) -> None:
    stream = CommandStream(known, VALUE_BYTES)
    stream.feed(PING + GETACK + command("SELECT", "1"))
    assert (stream.changed, stream.deletes) == (None, False)
    stream.feed(command("DEL", "k") + command("UNLINK", "j"))
    assert (stream.changed, stream.deletes) == (None, True)
    stream.feed(command("FLUSHALL"))
    assert stream.changed == "FLUSHALL in database 1"


@pytest.mark.parametrize("size", [3, 14, 999, 1000, 1001, 1002, 2001, 123_457])
def test_a_comment_is_as_long_as_what_it_stands_for(size: int) -> None:
    lines = comment(size).splitlines(keepends=True)
    assert sum(map(len, lines)) == size
    assert all(line[:1] == b"#" and line[-1:] == b"\n" and len(line) < 1024 for line in lines)


def _killed(_: object) -> None:
    raise OSError("killed")


def test_an_engine_reads_what_a_journal_keeps(
    known: dict[bytes, KnownCommand],
    rdb: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In pieces, opened again in the middle of a command, and in several logs."""
    journal = Journal(tmp_path)
    journal.fetched.write_bytes(rdb)
    journal.begin("a" * 40, 1000)
    content = b"".join(
        [command("SELECT", "3")]
        + [
            command("INCR", "counter") + PING + command("PUBLISH", "c", "x" * number)
            for number in range(300)
        ]
    )
    at, choice, number = 0, random.Random(1), 0
    stream, began = CommandStream(known, VALUE_BYTES), 1000
    while at < len(content):
        block = content[at : at + choice.randrange(1, 900)]
        silent = stream.feed(block)
        journal.write(block, silent, began)
        at, number = at + len(block), number + 1
        if number % 7 == 0:
            journal.keep(began + stream.whole, stream.database)
            journal.rotate()
        if number % 11 == 0:
            # Ended before it could say that it has begun another log.
            monkeypatch.setattr(journal, "_save", _killed)
            with pytest.raises(OSError, match="killed"):
                journal.rotate()
        if number % 5 == 0 or number % 11 == 0:
            journal.close()
            journal = Journal(tmp_path)
            journal.open()
            began = journal.known.offset
            stream, at = CommandStream(known, VALUE_BYTES, journal.known.database), began - 1000
    journal.keep(began + stream.whole, stream.database)
    journal.close()
    read = b"".join(path.read_bytes() for path in journal.logs)
    assert read.count(b"INCR") == 300
    assert b"PING" not in read
    assert b"PUBLISH" not in read
    log = tmp_path / "appendonly.aof"
    log.write_bytes(read)
    with redis_server.running(tmp_path / "read", diskless=True) as other:
        other.kill()
        log.replace(other.folder / "appendonly.aof")
        with (other.folder / "redis.conf").open("a") as file:
            file.write("appendonly yes\n")
        other.start()
        with other.client(3) as client:
            assert (client.get("counter"), client.dbsize()) == (b"300", 1)


@pytest.fixture
def target_id(migrating: Rig) -> str:
    return made(migrating, "valkey")


def synced(rig: Rig, instance_id: str, source: ReplicatingSource) -> str:
    migration_id = begun(rig, instance_id, CONNECTION, "copy_and_sync")
    connect(rig, instance_id, migration_id, source, tls="off")
    status_is(rig, instance_id, migration_id, "syncing")
    until(source.is_acknowledged, "all has come")
    return migration_id


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_hostile_commands_end_it(migrating: Rig, target_id: str, rdb: bytes) -> None:
    for content, told in (
        (command("CONFIG", "SET", "dir", "/"), "CONFIG SET: the owner"),
        (b"*2\r\n$3\r\nSET\r\n$9999999999\r\n", "a value of 9999999999 bytes"),
    ):
        with replicating(rdb) as source:
            migration_id = synced(migrating, target_id, source)
            source.send(command("SET", "k", "v"), content)
            seen = status_is(migrating, target_id, migration_id, "failed")
            assert told in seen["reason"]
        with keys(migrating, target_id) as here:
            assert here.dbsize() == 0
        assert not (migrating.home / "instances" / target_id / "migration").exists()


@pytest.mark.timeout(300)
def test_an_offset_that_does_not_fit_is_refused(migrating: Rig, target_id: str, rdb: bytes) -> None:
    with replicating(rdb) as source:
        migration_id = synced(migrating, target_id, source)
        source.send(command("MULTI"), command("INCR", "k"))
        cut_over(migrating, target_id, migration_id)
        seen = status_is(migrating, target_id, migration_id, "failed")
    assert "says of its history" in seen["reason"]


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_source_that_always_needs_a_new_copy(migrating: Rig, target_id: str, rdb: bytes) -> None:
    with replicating(rdb) as source:
        migration_id = synced(migrating, target_id, source)
        source.forgets = source.drops = True
        seen = status_is(migrating, target_id, migration_id, "failed")
        assert "copied anew 5 times within 30 minutes" in seen["reason"]
        assert source.fulls == 6, "the first one, four more, and one that is not taken"


@pytest.mark.timeout(300)
def test_nothing_expires_before_its_time(migrating: Rig, target_id: str, rdb: bytes) -> None:
    """What was due here when it came, but was kept alive at the source, is kept."""
    with replicating(rdb) as source:
        source.keys = "db0:keys=4,expires=1,avg_ttl=0\r\n"
        migration_id = synced(migrating, target_id, source)
        source.send(
            command("SELECT", "0"),
            command("SET", "kept", "v", "PXAT", "1000"),
            command("PERSIST", "kept"),
            command("SET", "counted", "1", "PXAT", "1000"),
            command("INCR", "counted"),
            command("PEXPIREAT", "counted", "99999999999999"),
            command("SET", "gone", "v", "PXAT", "1000"),
            command("DEL", "gone"),
            command("RPUSH", "list", "a"),
        )
        until(source.is_acknowledged, "all has come")
        cut_over(migrating, target_id, migration_id)
        seen = status_is(migrating, target_id, migration_id, "completed")
    assert seen["verification"]["rows_compared"] == 4
    assert "SCAN" in seen["verification"]["notes"][0]
    with keys(migrating, target_id) as here:
        assert here.mget("before", "kept", "counted", "gone") == [b"1", b"v", b"2", None]


@pytest.mark.timeout(300)
def test_a_command_that_fails_here_is_told(migrating: Rig, target_id: str, rdb: bytes) -> None:
    with replicating(rdb) as source:
        source.keys = "db0:keys=1,expires=0,avg_ttl=0\r\n"
        migration_id = synced(migrating, target_id, source)
        source.send(command("SELECT", "0"), command("LPUSH", "before", "x"))
        until(source.is_acknowledged, "all has come")
        cut_over(migrating, target_id, migration_id)
        seen = until(lambda: refused(migrating, target_id, migration_id), "it is told")
        assert "cannot run 1 of the commands that the source has run" in seen["reason"]


def refused(rig: Rig, instance_id: str, migration_id: str) -> Any:
    seen = rig.get(f"/v1/instances/{instance_id}/migrations/{migration_id}").json()
    return seen if seen["status"] == "syncing" and seen["reason"] else None


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_difference_is_named(migrating: Rig, target_id: str, rdb: bytes) -> None:
    with replicating(rdb) as source:
        source.keys = "db0:keys=2,expires=0,avg_ttl=0\r\ndb3:keys=7,expires=1,avg_ttl=0\r\n"
        migration_id = synced(migrating, target_id, source)
        cut_over(migrating, target_id, migration_id)
        seen = until(lambda: refused(migrating, target_id, migration_id), "it is told")
        assert "would differ, in database 0 first: 2 keys" in seen["reason"]
        differences = {each["object"]: each for each in seen["verification"]["differences"]}
        assert differences["database 3"]["source"] == "7 keys, 1 of which expire"
        assert differences["database 3"]["target"] == "0 keys, 0 of which expire"
        source.keys = "db0:keys=1,expires=0,avg_ttl=0\r\n"
        cut_over(migrating, target_id, migration_id)
        status_is(migrating, target_id, migration_id, "completed")
    with keys(migrating, target_id) as here:
        assert here.keys() == [b"before"]
