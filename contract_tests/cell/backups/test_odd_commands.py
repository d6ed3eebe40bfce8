"""Whatever an owner of Redis or Valkey does comes back as it was, in each of the databases."""

from typing import Any

import pytest
import redis

from contract_tests.cell.backups.recovering import Archived
from contract_tests.cell.rig import Rig

SCRIPT = "redis.call('SET', KEYS[1], 'x'); redis.call('INCR', 'counted'); return 1"
LIBRARY = """#!lua name=mine
redis.register_function('put', function(keys, args) return redis.call('SET', keys[1], args[1]) end)
"""
COMMANDS: list[list[Any]] = [
    ["SET", "a", b"\r\n#TS:9999999999\r\n*1\r\n$8\r\nFLUSHALL\r\n"],
    ["SET", "binary", bytes(range(256)) * 100],
    ["SET", "large", b"y" * 20_000_000],
    ["SET", "later", "1", "EX", "100000"],
    ["SET", "passing", "1", "PX", "1"],
    ["EVAL", SCRIPT, "1", "by script"],
    ["FUNCTION", "LOAD", LIBRARY],
    ["FCALL", "put", "1", "by function", "v"],
    ["RPUSH", "list", *map(str, range(2000))],
    ["LPOP", "list", "7"],
    ["SADD", "set", *map(str, range(700))],
    ["SPOP", "set", "9"],
    ["ZADD", "sorted", *(str(each // 2) for each in range(600))],
    ["ZPOPMIN", "sorted", "3"],
    ["HSET", "hash", *map(str, range(300))],
    ["XADD", "stream", "MAXLEN", "~", "10", "*", "f", "v"],
    ["XGROUP", "CREATE", "stream", "group", "0"],
    ["XREADGROUP", "GROUP", "group", "one", "STREAMS", "stream", ">"],
    ["PFADD", "counted roughly", *map(str, range(99))],
    ["SETBIT", "bits", "100000", "1"],
    ["BITFIELD", "bits", "SET", "u8", "#3", "200"],
    ["GEOADD", "places", "13.4", "52.5", "here"],
    ["APPEND", "appended", "x" * 1000],
    ["COPY", "a", "copied"],
    ["RENAME", "copied", "named"],
    ["SORT", "list", "LIMIT", "0", "5", "STORE", "in order"],
    ["GETEX", "appended", "EX", "5000"],
]


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["valkey", "redis"])
def test_what_an_owner_did_comes_back(archiving_rig: Rig, engine: str) -> None:
    one = Archived.make(archiving_rig, engine=engine)
    base = one.base()
    with client(one, 3) as third:
        for command in COMMANDS:
            third.execute_command(*command)
        with third.pipeline(transaction=True) as together:
            together.set("in a transaction", "1").incr("in a transaction").execute()
        third.execute_command("MOVE", "named", 5)
        third.execute_command("SWAPDB", 5, 6)
        third.set("kept", "1")
    # Other files begin meanwhile.
    one.base()
    with client(one, 7) as seventh:
        seventh.set("gone", "1")
        seventh.execute_command("FLUSHDB")
        seventh.set("after", "1")
    moment = one.write(1)
    before = content(one)
    one.archived_until(moment)
    with client(one, 0) as first:
        first.execute_command("FLUSHALL")
        first.execute_command("FUNCTION", "FLUSH")
    assert one.restored(base, moment) == [1]
    assert content(one) == before
    with client(one, 3) as third:
        assert third.execute_command("FCALL", "put", "1", "again", "v") in (True, b"OK")


def client(one: Archived, database: int) -> redis.Redis:
    login = one.login
    return redis.Redis(
        unix_socket_path=str(one.site.socket),
        username=login.username,
        password=login.password,
        db=database,
    )


def content(one: Archived) -> dict[tuple[int, bytes], Any]:
    """By database and key: the value, and whether it expires."""
    found = {}
    for database in range(16):
        with client(one, database) as asked:
            for key in asked.scan_iter(count=1000):
                found[database, key] = (value(asked, key), asked.ttl(key) > 0)
    return found


def value(asked: redis.Redis, key: bytes) -> Any:
    """Of sets and hashes, whose order is nobody's matter, what is in them."""
    kind = asked.type(key)
    if kind == b"set":
        return asked.smembers(key)
    if kind == b"hash":
        return asked.hgetall(key.decode())
    if kind == b"stream":
        return asked.xrange(key), asked.xpending(key, "group")
    return asked.dump(key)
