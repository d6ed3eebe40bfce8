"""Writes into a Redis, on and on: what is lost, or taken over twice, shows in the end."""

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import redis

from contract_tests.cell.migrations.redis_server import RedisServer

SCRIPT = "redis.call('INCR', KEYS[1]); redis.call('LPUSH', KEYS[2], ARGV[1]); return 1"
LIBRARY = "#!lua name=mine\nredis.register_function('f{0}', function() return {0} end)"


def once(client: Any, other: Any, number: int, choice: random.Random) -> None:
    """`Any`: the stubs of the client are of both its kinds."""
    name = str(choice.randrange(20))
    client.incr("counter")
    client.rpush(f"list:{name}", number)
    if number % 3 == 0:
        client.lpop(f"list:{choice.randrange(20)}")
    client.xadd("events", {"n": number})
    if client.xreadgroup("group", "me", {"events": ">"}, count=1) and number % 2:
        client.xautoclaim("events", "group", "you", 0, count=1)
    client.set(f"passing:{number}", number, px=choice.randrange(1, 3_000))
    client.set(f"kept:{name}", number, ex=100_000)
    client.expire(f"kept:{name}", 200_000 if number % 2 else 50_000)
    with client.pipeline(transaction=True) as pipe:
        pipe.incr("one").incr("other").zincrby("scores", 0.1, name)
        pipe.hset("hash", name, bytes(choice.randrange(256) for _ in range(50))).execute()
    client.eval(SCRIPT, 2, "by script", "list by script", number)
    client.sadd("set", number)
    client.spop("set") if number % 4 == 0 else None
    client.publish("channel", "x" * choice.randrange(2_000))
    other.incrbyfloat("float", 0.25)
    other.setrange("large", choice.randrange(100_000), name)
    if number % 50 == 0:
        other.function_load(LIBRARY.format(number), replace=True)
        client.swapdb(8, 9)
        client.copy("hash", f"copy:{name}", replace=True)
        with redis.Redis(**{**client.connection_pool.connection_kwargs, "db": 7}) as seventh:
            seventh.flushdb()
            seventh.set("after it", number)


@contextlib.contextmanager
def writing(server: RedisServer, *, pause_s: float = 0.002) -> Iterator[threading.Event]:
    """Until the event is set, or the block ends; what it raised is raised there."""
    ended, failed = threading.Event(), []
    choice = random.Random(7)
    with server.client() as client:
        client.xgroup_create("events", "group", mkstream=True)

    def write() -> None:
        number = 0
        with server.client() as client, server.client(5) as other:
            while not ended.is_set():
                number += 1
                try:
                    once(client, other, number, choice)
                except (redis.exceptions.ConnectionError, redis.exceptions.BusyLoadingError):
                    time.sleep(0.05)  # it is being started anew
                except Exception as error:  # noqa: BLE001 - raised below
                    failed.append(error)
                    return
                time.sleep(pause_s)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    stop = _Stop(ended, thread)
    try:
        yield stop
    finally:
        stop.set()
    assert not failed, failed


class _Stop(threading.Event):
    def __init__(self, ended: threading.Event, thread: threading.Thread) -> None:
        super().__init__()
        self._ended, self._thread = ended, thread

    def set(self) -> None:
        self._ended.set()
        self._thread.join(10)
        super().set()


def everything(client: Any) -> dict[bytes, Any]:
    """Of one database, but for what may have expired meanwhile."""
    read = {
        b"string": client.get,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"hash": client.hgetall,
        b"set": client.smembers,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"stream": lambda key: (client.xrange(key), [_group(g) for g in client.xinfo_groups(key)]),
    }
    found: dict[bytes, Any] = {}
    for key in client.scan_iter(count=1000):
        kind, lasts = client.type(key), client.pexpiretime(key)
        if kind in read and not key.startswith(b"passing:"):
            found[key] = (lasts, read[kind](key))
    return found


def _group(told: dict[str, Any]) -> tuple[Any, ...]:
    """Without what replicas do not get to know, such as how many entries were read."""
    return told["name"], told["consumers"], told["pending"], told["last-delivered-id"]
