"""Redis and Valkey as a cell runs them, each spoken to by its own client on the route's socket."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import redis
import valkey

from cell.engines import find
from cell.runtime.host import Host
from contract_tests.cell.rig import GIB, LARGER, SMALL, Rig, running, until
from contract_tests.engines.speakers import ONCE

CLIENTS: dict[str, Any] = {
    "redis": partial(redis.Redis, retry=ONCE),
    "valkey": valkey.Valkey,
}
ERRORS = (redis.exceptions.RedisError, valkey.exceptions.ValkeyError)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("resp") / "cell") as made:
        yield made


# One driver runs both: the second has its turn at night.
@pytest.fixture(params=["valkey", pytest.param("redis", marks=pytest.mark.nightly)])
def engine(request: pytest.FixtureRequest, host: Host) -> str:
    if request.param not in find(host).drivers:
        pytest.skip(f"no driver found {request.param} on this machine")
    return str(request.param)


def order(rig: Rig, host: Host, engine: str, **changes: Any) -> str:
    return rig.make(
        engine=engine, engine_version=find(host).drivers[engine].versions()[0], **changes
    )


def client(rig: Rig, instance_id: str, engine: str, password: str | None = None) -> Any:
    route = rig.route(instance_id)
    assert route is not None
    assert route["protocol"] == "resp"
    return CLIENTS[engine](
        unix_socket_path=route["socket"],
        username="app",
        password=password or rig.reveal(instance_id)["password"],
        decode_responses=True,
    )


def test_a_life_from_order_to_erasure(rig: Rig, host: Host, engine: str) -> None:
    instance_id = order(rig, host, engine)
    uri = rig.reveal(instance_id)["uri"]
    assert uri.startswith("rediss://app:")
    assert uri.endswith("/0")
    with client(rig, instance_id, engine) as own:
        own.set("kept", "yes")
        with own.pipeline() as several:
            assert several.incr("counter").incr("counter").execute() == [1, 2]
        # The size while it runs: the same process, the same connection.
        pid = rig.engine_pid(instance_id)
        assert rig.action(instance_id, "resize", {"size": LARGER})["size"] == LARGER["name"]
        assert rig.engine_pid(instance_id) == pid
        assert own.info("memory")["maxmemory"] == int(0.6 * 2 * GIB)
        # Rotation: both passwords, and no connection is cut.
        former = rig.reveal(instance_id)["password"]
        new = rig.rotate(instance_id)["password"]
        assert own.get("kept") == "yes"
    for password in (former, new):
        with client(rig, instance_id, engine, password) as again:
            assert again.get("kept") == "yes"
    rig.action(instance_id, "pause")
    assert rig.observe(instance_id)["memory_bytes"] == 0
    rig.action(instance_id, "resume")
    with client(rig, instance_id, engine, new) as again:
        assert again.get("counter") == "2"
    rig.action(instance_id, "erase")
    assert not (rig.home / "instances" / instance_id).exists()


def test_one_instance_is_nothing_to_another(rig: Rig, host: Host, engine: str) -> None:
    mine, theirs = order(rig, host, engine), order(rig, host, engine)
    with client(rig, mine, engine) as own, client(rig, theirs, engine) as other:
        for each in (own, other):
            each.set("kept", "yes")
        own.flushall()
        assert other.get("kept") == "yes"
        password = rig.reveal(mine)["password"]
    with client(rig, theirs, engine, password) as wrong, pytest.raises(ERRORS):
        wrong.ping()


def test_what_a_killed_engine_took_is_there_when_it_is_back(
    rig: Rig, host: Host, engine: str
) -> None:
    instance_id = order(rig, host, engine)
    password = rig.reveal(instance_id)["password"]
    with client(rig, instance_id, engine, password) as own:
        for number in range(500):
            own.rpush("numbers", number)
    os.kill(rig.engine_pid(instance_id), signal.SIGKILL)
    until(lambda: rig.observe(instance_id)["restarts"] == 1, "it runs again")
    with client(rig, instance_id, engine, password) as own:
        assert own.llen("numbers") == 500


# Slow for what it adds by day.
@pytest.mark.nightly
def test_a_size_too_small_for_the_data_is_refused_and_nothing_changes(
    rig: Rig, host: Host, engine: str
) -> None:
    instance_id = order(rig, host, engine)
    tiny = {**SMALL, "name": "tiny", "memory_bytes": 2**28}
    with client(rig, instance_id, engine) as own:
        for number in range(200):
            own.set(f"part {number}", "x" * 1_000_000)
        path = f"/v1/instances/{instance_id}/actions/resize"
        refused = rig.act("POST", path, {"size": tiny})
        assert refused.status_code == 409, refused.text
        assert "cannot resize to tiny" in refused.json()["detail"]
        assert rig.observe(instance_id)["size"] == SMALL["name"]
        assert len(own.get("part 199")) == 1_000_000
    rig.action(instance_id, "erase")
