"""What the gateway tells the cell about each instance's connections and bytes."""

import json
import os
import signal
import time
from typing import Any

from contract_tests.gateway.conftest import MakeDoor
from contract_tests.gateway.door import WAIT_S, Door, raw_get, until


def activity(door: Door) -> dict[str, Any]:
    files = list((door.home / "activity").glob("*.json"))
    assert len(files) <= 1
    return dict(json.loads(files[0].read_bytes())) if files else {}


def test_connections_and_bytes_are_told(make_door: MakeDoor) -> None:
    door = make_door()
    host = door.add_instance("told")
    assert activity(door) == {}
    began_at = time.time()
    with door.connect(host) as one, door.connect(host) as two:
        raw_get(one, "/bytes/100000")
        raw_get(two)
        until(lambda: activity(door).get("inst_told", {}).get("connections") == 2, "both are told")
    until(lambda: activity(door)["inst_told"]["connections"] == 0, "their end is told")
    told = activity(door)["inst_told"]
    assert told["bytes_out"] > 100_000
    assert 0 < told["bytes_in"] < 1_000
    # It is told in milliseconds, rounded.
    assert began_at - 0.001 <= told["last_activity_at"] <= time.time() + 0.001


def test_the_file_is_named_by_the_worker_and_only_written_when_changed(
    make_door: MakeDoor,
) -> None:
    door = make_door()
    host = door.add_instance("named")
    door.get(host)
    (worker,) = door.workers()
    path = door.home / "activity" / f"{worker}.json"
    until(lambda: activity(door).get("inst_named", {}).get("connections") == 0, "its end is told")
    written_at = path.stat().st_mtime_ns
    with door.connect(host):
        time.sleep(1.5)  # a probe; longer than the interval of writing
    assert path.stat().st_mtime_ns == written_at


def test_refused_connections_are_no_activity(make_door: MakeDoor) -> None:
    door = make_door()
    host = door.add_instance("refused", state="paused", refusal="paused")
    assert door.get(host).status_code == 503
    listed = door.add_instance("kept-out", allow_cidrs=[])
    assert not door.connectable(listed)
    other = door.add_instance("counted")
    door.get(other)
    until(lambda: "inst_counted" in activity(door), "the served one is told")
    assert list(activity(door)) == ["inst_counted"]


def test_a_dead_workers_connections_go_and_its_last_activity_stays(make_door: MakeDoor) -> None:
    door = make_door()
    host = door.add_instance("dead")
    with door.connect(host) as connection:
        raw_get(connection)
        until(lambda: activity(door).get("inst_dead", {}).get("bytes_out"), "it is told")
        before = activity(door)["inst_dead"]
        (worker,) = door.workers()
        os.kill(worker, signal.SIGKILL)
        until(lambda: door.workers() != [worker] and activity(door), "it is replaced")
    assert activity(door)["inst_dead"] == {
        "connections": 0,
        "last_activity_at": before["last_activity_at"],
        "bytes_in": 0,
        "bytes_out": 0,
    }


def test_a_gateway_that_restarts_knows_the_last_activity(make_door: MakeDoor) -> None:
    door = make_door(restarts=True)
    host = door.add_instance("restarted")
    assert door.get(host).status_code == 200
    door.process.terminate()
    door.process.wait(WAIT_S)
    before = activity(door)["inst_restarted"]["last_activity_at"]
    door.restart()
    after = until(lambda: activity(door).get("inst_restarted"), "it is told again")
    assert after is not None
    assert after["last_activity_at"] == before
