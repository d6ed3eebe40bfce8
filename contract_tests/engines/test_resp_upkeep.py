"""What an owner can leave in Redis and Valkey keeps no later start from its end."""

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from cell.engines.driver import Health
from cell.engines.resp import upkeep
from contract_tests.cell.rig import SMALL, Rig, running, until
from contract_tests.engines.conftest import Subject, on_either_resp
from contract_tests.engines.speakers import ONCE

LIBRARY = "#!lua name={0}\nredis.register_function('{0}', function() return 1 end)"
# Slow, with some way to go to the half second after which a load is refused.
SLOW = """#!lua name=slow
local x = 0
for i = 1, 15000000 do x = x + i end
redis.register_function('slow', function() return 1 end)"""
# Longer than three attempts to log in wait for an answer, one after the other.
SLOW_S = 40.0
START_TIMEOUT_S = 2.0
FAST = {**SMALL, "name": "fast", "vcpu": 2.0}


@pytest.fixture(autouse=True)
def listed_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "LIST_EVERY_S", 0.0)


def client(subject: Subject) -> redis.Redis:
    return redis.Redis(
        unix_socket_path=str(subject.site.socket),
        username=subject.login.username,
        password=subject.login.password,
        decode_responses=True,
        retry=ONCE,
    )


def load(own: Any, *names: str) -> None:
    for name in names:
        own.function_load(LIBRARY.format(name))


def look(subject: Subject) -> None:
    pulse = subject.driver.health(subject.site, subject.login)
    assert subject.run(pulse) is Health.WELL


def names(own: Any) -> set[str]:
    return {each[1] for each in own.function_list()}


@on_either_resp
def test_of_too_many_libraries_the_newest_are_deleted(subject: Subject) -> None:
    subject.start()
    kept = [f"kept{number}" for number in range(upkeep.LIBRARIES_MAX - 1)]
    with client(subject) as own:
        load(own, *kept)
        look(subject)
        load(own, "a1", "a2", "a3")
        look(subject)
        # One of the new ones has room.
        assert names(own) == {*kept, "a1"}
        assert own.fcall("kept7", 0) == own.fcall("a1", 0) == 1
        own.function_delete("kept7")
        load(own, "b1")
        look(subject)
        assert names(own) == {*kept, "a1", "b1"} - {"kept7"}
    assert "more than 50 function libraries; deleted: a2, a3" in subject.site.log.read_text()


@on_either_resp
def test_libraries_are_not_listed_at_every_look(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list may be megabytes, and an owner can make their number differ at each look."""
    monkeypatch.setattr(upkeep, "LIST_EVERY_S", 3600.0)
    subject.start()
    with client(subject) as own:
        for number in range(4):
            load(own, f"another{number}")
            look(subject)
        assert own.info("commandstats")["cmdstat_function|list"]["calls"] == 1
        monkeypatch.setattr(upkeep, "LIST_EVERY_S", 0.0)
        look(subject)
        assert own.info("commandstats")["cmdstat_function|list"]["calls"] == 2


@on_either_resp
def test_libraries_of_an_earlier_version_stay(subject: Subject) -> None:
    subject.start()
    former = [f"former{number}" for number in range(upkeep.LIBRARIES_MAX + 5)]
    with client(subject) as own:
        load(own, *former)
        look(subject)
        load(own, "another")
        look(subject)
        assert names(own) == set(former)


@on_either_resp
def test_libraries_too_large_to_be_listed_are_deleted(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject.start()
    with client(subject) as own:
        load(own, "first")
        look(subject)
        monkeypatch.setattr("cell.engines.resp.connection.ANSWER_BYTES_MAX", 6_000)
        load(own, *(f"large{number}" for number in range(upkeep.LIBRARIES_MAX)))
        look(subject)
        look(subject)
        assert names(own) == set()


@on_either_resp
def test_a_log_that_took_long_to_come_to_be_is_written_anew(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each start would run each of its commands again, however often one replaced another."""
    subject.start()
    with client(subject) as own:
        look(subject)
        for _ in range(3):
            own.function_load(LIBRARY.format("same"), replace=True)
        look(subject)
        assert own.info("persistence")["aof_rewrites"] == 0
        monkeypatch.setattr(upkeep, "REPLAY_S", 0.0)
        look(subject)
        assert own.info("persistence")["aof_rewrites"] == 1
        until(lambda: not own.info("persistence")["aof_rewrite_in_progress"], "it is rewritten")
        now = own.info("persistence")
        assert now["aof_current_size"] == now["aof_base_size"]
        # Nothing has been written since.
        look(subject)
        assert own.info("persistence")["aof_rewrites"] == 1
    subject.stop()
    subject.start()
    with client(subject) as own:
        assert names(own) == {"same"}


@pytest.fixture
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    home = tmp_path_factory.mktemp("hasty") / "cell"
    with running(home, start_timeout_s=START_TIMEOUT_S) as made:
        yield made


@pytest.mark.nightly
def test_libraries_that_load_for_longer_than_a_start_are_waited_for(hasty: Rig) -> None:
    cell = hasty.get("/v1/cell").json()
    versions = {each["engine"]: each["versions"] for each in cell["engines"]}
    if not versions.get("redis"):
        pytest.skip("no redis-server on this machine")
    instance_id = hasty.make(engine="redis", engine_version=versions["redis"][0], size=FAST)
    route = hasty.route(instance_id)
    assert route is not None
    password = hasty.reveal(instance_id)["password"]
    own: Any = redis.Redis(
        unix_socket_path=route["socket"], username="app", password=password, retry=ONCE
    )
    # On a busy machine it may take too long, and is refused.
    while not _is_loaded(own):
        pass
    spent_s = own.info("commandstats")["cmdstat_function|load"]["usec"] / 1e6
    hasty.action(instance_id, "pause")
    folder = hasty.home / "instances" / instance_id / "data" / "appendonlydir"
    (log,) = folder.glob("*.incr.aof")
    words = ["FUNCTION", "LOAD", "REPLACE", SLOW]
    again = f"*{len(words)}\r\n" + "".join(f"${len(each)}\r\n{each}\r\n" for each in words)
    with log.open("a") as file:
        file.write(again * math.ceil(SLOW_S / spent_s))
    began = time.monotonic()
    assert hasty.action(instance_id, "resume")["restarts"] == 0
    assert time.monotonic() - began > START_TIMEOUT_S
    assert own.exists("none") == 0


def _is_loaded(own: Any) -> bool:
    try:
        own.function_load(SLOW)
    except redis.ResponseError as error:
        return "already exists" in str(error)
    return True
