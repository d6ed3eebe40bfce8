"""What becomes of instances: paused, resized, copied, deleted, erased, asleep and woken."""

import os
import threading
import time
from pathlib import Path

import httpx
import orjson

from contract_tests.cell.rig import LARGER, Rig, new_id, spec, until


def told_activity(rig: Rig, instance_id: str, connections: int) -> None:
    """Writes what a gateway's worker (this process) would."""
    told = {"connections": connections, "last_activity_at": time.time()}
    path = rig.home / "activity" / f"{os.getpid()}.json"
    part = path.with_suffix(".part")
    part.write_bytes(orjson.dumps({instance_id: {**told, "bytes_in": 0, "bytes_out": 0}}))
    part.replace(path)


def test_an_instance_keeps_its_rows_through_all_that_stops_it(light_rig: Rig) -> None:
    instance_id = light_rig.make()
    password = light_rig.reveal(instance_id)["password"]
    light_rig.add(instance_id, password, 42)

    paused = light_rig.action(instance_id, "pause")
    assert (paused["status"], paused["paused_by"]) == ("paused", "request")
    route = light_rig.route(instance_id)
    assert route is not None
    assert (route["state"], bool(route["refusal"])) == ("paused", True)
    assert light_rig.wake(instance_id).status_code == 409
    # A specification that is declared again changes figures and does not wake.
    assert light_rig.put(instance_id, size=LARGER)["status"] == "paused"
    assert light_rig.action(instance_id, "resume")["status"] == "running"
    assert light_rig.numbers(instance_id, password) == [42]

    assert light_rig.action(instance_id, "delete")["status"] == "stopped"
    assert light_rig.route(instance_id) is None
    refused = light_rig.act("POST", f"/v1/instances/{instance_id}/actions/resume")
    assert refused.status_code == 409
    # Undeleted it is paused, until it is resumed.
    back = light_rig.put(instance_id)
    assert (back["status"], back["paused_by"]) == ("paused", "request")
    assert light_rig.action(instance_id, "resume")["status"] == "running"
    assert light_rig.numbers(instance_id, password) == [42]

    assert light_rig.action(instance_id, "erase")["status"] == "erased"
    assert not (light_rig.home / "instances" / instance_id).exists()
    assert not Path(route["socket"]).parent.exists()
    assert light_rig.observe(instance_id)["credentials"]["generation"] == 0
    again = light_rig.act("PUT", f"/v1/instances/{instance_id}", spec(instance_id))
    assert again.status_code == 409
    assert light_rig.action(instance_id, "erase")["status"] == "erased"


def test_a_folder_in_its_sockets_place_keeps_no_engine_from_starting(light_rig: Rig) -> None:
    """Left by an engine that somebody had taken over."""
    instance_id = light_rig.make()
    route = light_rig.route(instance_id)
    assert route is not None
    light_rig.action(instance_id, "pause")
    (Path(route["socket"]) / "more").mkdir(parents=True)
    assert light_rig.action(instance_id, "resume")["status"] == "running"
    light_rig.action(instance_id, "erase")


def test_a_resize_changes_what_the_engine_may_use(shared_rig: Rig) -> None:
    instance_id = shared_rig.make()
    password = shared_rig.reveal(instance_id)["password"]
    before = shared_rig.get(f"/v1/instances/{instance_id}/capacity").json()
    asked = "SELECT current_setting('memory_limit')"
    small = shared_rig.query(instance_id, password, asked).json()["rows"]
    copy = shared_rig.action(instance_id, "snapshot", {"label": "before-change"})
    assert copy["size_bytes"] > 0
    assert shared_rig.action(instance_id, "resize", {"size": LARGER})["size"] == "s1"
    assert shared_rig.query(instance_id, password, asked).json()["rows"] != small
    after = shared_rig.get(f"/v1/instances/{instance_id}/capacity").json()
    assert (before["memory_limit_bytes"], after["memory_limit_bytes"]) == (2**30, 2**31)
    assert after["memory_bytes"] > 0


def test_the_gateway_is_told_whose_an_instance_is(light_rig: Rig) -> None:
    """In the control plane's word for it, or else as nobody else's."""
    for tenant in ("somebody", ""):
        instance_id = light_rig.make(tenant=tenant)
        route = light_rig.route(instance_id)
        assert route is not None
        assert route["tenant"] == (tenant or instance_id)


def test_a_changed_allow_list_reaches_the_gateway_without_a_restart(light_rig: Rig) -> None:
    instance_id = light_rig.make()
    pid = light_rig.engine_pid(instance_id)
    version = light_rig.routes()["version"]
    light_rig.put(instance_id, allow_cidrs=["10.0.0.0/8", "::1/128"])
    route = light_rig.route(instance_id)
    assert route is not None
    assert route["allow_cidrs"] == ["10.0.0.0/8", "::1/128"]
    assert light_rig.routes()["version"] > version
    assert light_rig.engine_pid(instance_id) == pid


def test_an_idle_instance_sleeps_and_wakes_once_for_all(light_rig: Rig) -> None:
    instance_id = new_id()
    told_activity(light_rig, instance_id, connections=1)
    light_rig.put(instance_id, idle_pause_s=0.5)
    password = light_rig.reveal(instance_id)["password"]
    light_rig.add(instance_id, password, 7)
    pid = light_rig.engine_pid(instance_id)
    until(lambda: light_rig.observe(instance_id)["connections"] == 1, "the cell has read it")
    told_activity(light_rig, instance_id, connections=0)
    seen = light_rig.status_is(instance_id, "paused")
    assert (seen["paused_by"], seen["started_at"]) == ("idle", None)
    until(lambda: not Path(f"/proc/{pid}").exists(), "the engine ended")
    route = light_rig.route(instance_id)
    assert route is not None
    assert route["state"] == "idle"

    told_activity(light_rig, instance_id, connections=1)
    answers: list[httpx.Response] = []
    callers = [
        threading.Thread(target=lambda: answers.append(light_rig.wake(instance_id)))
        for _ in range(5)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [answer.status_code for answer in answers] == [200] * 5
    assert light_rig.numbers(instance_id, password) == [7]
    lines = light_rig.log_path.read_text().splitlines()
    started = [one for one in lines if "engine_started" in one and instance_id in one]
    assert len(started) == 2
    light_rig.action(instance_id, "pause")


def test_a_connection_keeps_an_instance_awake(light_rig: Rig) -> None:
    instance_id = new_id()
    told_activity(light_rig, instance_id, connections=1)
    light_rig.put(instance_id, idle_pause_s=0.2)
    other = light_rig.make(idle_pause_s=0.2)
    # The other has no connection and sleeps; by then this one would have slept too.
    light_rig.status_is(other, "paused")
    assert light_rig.observe(instance_id)["status"] == "running"
    light_rig.action(instance_id, "delete")


def test_the_worker_of_a_dead_gateway_keeps_nothing_awake(light_rig: Rig) -> None:
    instance_id = new_id()
    dead = light_rig.home / "activity" / "4194999.json"
    told = {"connections": 3, "last_activity_at": time.time(), "bytes_in": 0, "bytes_out": 0}
    dead.write_bytes(orjson.dumps({instance_id: told}))
    light_rig.put(instance_id, idle_pause_s=0.5)
    light_rig.status_is(instance_id, "paused")
    dead.unlink()
