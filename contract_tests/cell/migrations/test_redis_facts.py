"""What a Redis says of itself, and what of that is told before anything is changed."""

import pytest

from cell.engines.resp.keyspace import contents
from cell.migrations.redis.facts import RedisFacts, findings
from cell.specification import Size, Spec


def facts(**said: object) -> RedisFacts:
    lines = [f"{name.rstrip('_')}:{value}\r\n" for name, value in said.items()]
    return RedisFacts.parse(b"# Server\r\n" + "".join(lines).encode())


WELL = {"redis_version": "7.2.4", "master_repl_offset": 5, "role": "master"}
FOUND: dict[str, tuple[dict[str, object], tuple[str, str] | None]] = {
    "well": ({}, None),
    "loading": ({"loading": 1}, ("blocking", "loading")),
    "a replica": ({"role": "slave", "master_link_status": "up"}, ("info", "replica")),
    "an orphan": ({"role": "slave", "master_link_status": "down"}, ("blocking", "replica")),
    "a cluster": ({"cluster_enabled": 1}, ("warning", "cluster")),
    "much data": ({"used_memory_dataset": 10**9}, ("blocking", "memory")),
    "nearly as much": ({"used_memory": 280 * 10**6}, ("warning", "memory")),
    "eviction": ({"maxmemory_policy": "allkeys-lfu"}, ("warning", "evicts")),
    "many databases": ({"db16": "keys=1,expires=0"}, ("blocking", "databases")),
    "a module": ({"module": "name=ReJSON,ver=1"}, ("warning", "modules")),
    "expiry": ({"db0": "keys=2,expires=1"}, ("info", "expiring")),
    "a clock": ({"db0": "keys=2,expires=1", "server_time_usec": 1}, ("warning", "clock")),
    "no history": ({"master_repl_offset": "x"}, ("blocking", "no_offset")),
    "a newer one": ({"redis_version": "7.4.0"}, ("warning", "newer")),
    "one of another kind": ({"valkey_version": "9.0.0"}, None),
    "scripts": ({"redis_version": "4.0.1"}, ("warning", "scripts")),
    "a small backlog": ({"repl_backlog_size": 2**20}, ("info", "backlog")),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_a_source_says_is_judged(name: str) -> None:
    said, wanted = FOUND[name]
    size = Size("s", 1.0, 2**29, 10**9, 20)
    spec = Spec("redis", "7.2", size, "x.local", None, None, 0.0)
    found = list(findings(facts(**{**WELL, **said}), spec, syncs=True))
    told = {(each.severity, each.code) for each in found}
    assert told - {("info", "version"), ("info", "expiring")} == {wanted} - {
        None,
        ("info", "expiring"),
    }
    assert wanted is None or wanted in told


def test_what_a_source_says_is_bounded() -> None:
    strange = facts(
        redis_version="\x1b" * 5000, db0="keys=" + "9" * 5000, master_repl_offset="9" * 5000
    )
    assert (strange.offset, strange.counts) == (None, {})
    assert len(strange.version) < 100
    assert "\x1b" not in strange.version


def test_keys_that_expire_are_no_difference_to_files() -> None:
    before, after = {"db0": "keys=3,expires=1"}, {"db0": "keys=2,expires=0"}
    assert contents(before).lasting == contents(after).lasting
    assert contents(before).digest != contents(after).digest
    assert contents({"db0": "keys=1,expires=0"}).lasting != contents(after).lasting
    assert contents({"db0": "keys=1,expires=1"}).digest != contents({}).digest
