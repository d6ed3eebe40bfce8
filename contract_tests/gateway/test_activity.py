"""What the gateway tells the cell about each instance's connections and bytes."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from cell.instances.activity import read
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import WAIT_S, GatewayRig, raw_get, until
from gateway.activity import HOUR_S, Activity, Former, take_over


def activity(gateway: GatewayRig) -> dict[str, Any]:
    files = list((gateway.home / "activity").glob("*.json"))
    assert len(files) <= 1
    return dict(json.loads(files[0].read_bytes())) if files else {}


def test_connections_and_bytes_are_told(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    host = gateway.add_instance("told")
    assert activity(gateway) == {}
    began_at = time.time()
    with gateway.connect(host) as one, gateway.connect(host) as two:
        raw_get(one, "/bytes/100000")
        raw_get(two)
        until(
            lambda: activity(gateway).get("inst_told", {}).get("connections") == 2, "both are told"
        )
    until(lambda: activity(gateway)["inst_told"]["connections"] == 0, "their end is told")
    told = activity(gateway)["inst_told"]
    assert told["bytes_out"] > 100_000
    assert 0 < told["bytes_in"] < 1_000
    # It is told in milliseconds, rounded.
    assert began_at - 0.001 <= told["last_activity_at"] <= time.time() + 0.001


def test_the_file_is_named_by_the_worker_and_a_probe_is_no_activity(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway()
    host, other = gateway.add_instance("named"), gateway.add_instance("other")
    gateway.get(host)
    (worker,) = gateway.workers()
    path = gateway.home / "activity" / f"{worker}.json"
    until(
        lambda: activity(gateway).get("inst_named", {}).get("connections") == 0, "its end is told"
    )
    before = activity(gateway)["inst_named"]
    with gateway.connect(host):
        # What comes after the probe is told, and would have been told with it.
        gateway.get(other)
        until(lambda: activity(gateway).get("inst_other", {}).get("connections") == 0, "it is told")
    assert activity(gateway)["inst_named"] == before
    assert [each.name for each in path.parent.glob("*.json")] == [path.name]


def test_the_file_is_only_written_when_something_has_changed(tmp_path: Path) -> None:
    told = Activity(tmp_path, {}, lambda _: 1)
    traffic = told.opened("inst_a")
    assert told.write()
    (path,) = tmp_path.glob("*.json")
    written = path.stat()
    assert not told.write()
    assert path.stat() == written
    traffic.bytes_out += 1
    assert told.write()


def test_refused_connections_are_no_activity(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    host = gateway.add_instance("refused", state="paused", refusal="paused")
    assert gateway.get(host).status_code == 503
    listed = gateway.add_instance("kept-out", allow_cidrs=[])
    assert not gateway.connectable(listed)
    other = gateway.add_instance("counted")
    gateway.get(other)
    until(lambda: "inst_counted" in activity(gateway), "the served one is told")
    assert list(activity(gateway)) == ["inst_counted"]


def test_a_dead_workers_connections_go_and_its_last_activity_stays(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway()
    host = gateway.add_instance("dead")
    with gateway.connect(host) as connection:
        raw_get(connection)
        until(lambda: activity(gateway).get("inst_dead", {}).get("bytes_out"), "it is told")
        before = activity(gateway)["inst_dead"]
        (worker,) = gateway.workers()
        os.kill(worker, signal.SIGKILL)
        until(lambda: gateway.workers() != [worker] and activity(gateway), "it is replaced")
    assert activity(gateway)["inst_dead"] == {
        "connections": 0,
        "last_activity_at": before["last_activity_at"],
        "bytes_in": 0,
        "bytes_out": 0,
        "peaks": before["peaks"],
    }
    assert list(before["peaks"].values()) == [1]


def test_a_gateway_that_restarts_knows_the_last_activity(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(restarts=True)
    host = gateway.add_instance("restarted")
    assert gateway.get(host).status_code == 200
    gateway.process.terminate()
    gateway.process.wait(WAIT_S)
    before = activity(gateway)["inst_restarted"]["last_activity_at"]
    gateway.restart()
    after = until(lambda: activity(gateway).get("inst_restarted"), "it is told again")
    assert after is not None
    assert after["last_activity_at"] == before


def test_the_peak_of_the_hour_is_of_all_workers_together(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(workers=2)
    host = gateway.add_instance("busy", connections_max=20)
    held = [gateway.connect(host) for _ in range(8)]
    assert [raw_get(each)[0] for each in held] == [200] * 8
    for each in held:
        each.close()
    until(lambda: _peak(gateway, "inst_busy") == 8, "the peak is told")
    until(
        lambda: read(gateway.home / "activity")["inst_busy"].connections == 0, "their end is told"
    )
    assert gateway.get(host).status_code == 200
    # Two workers that share the connections know the same of them: nothing is counted twice.
    for worker in gateway.workers():
        os.kill(worker, signal.SIGKILL)
    until(lambda: tries_get(gateway, host), "it serves")
    until(lambda: _peak(gateway, "inst_busy") == 8, "the next ones know it")


def test_connections_that_stay_are_of_the_next_hour_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [10.0 * HOUR_S + 3599]
    monkeypatch.setattr("gateway.activity.time.time", lambda: clock[0])
    counted = {"inst_a": 0}
    told = Activity(tmp_path, {}, counted.__getitem__)
    first, second = told.opened("inst_a"), told.opened("inst_a")
    for total in (1, 2):
        counted["inst_a"] = total
        told.let_in("inst_a")
    told.closed(second)
    counted["inst_a"] = 1
    clock[0] += 2
    told.write()
    assert read(tmp_path)["inst_a"].peaks == {10: 2, 11: 1}
    told.closed(first)
    # The next gateway goes on from there, and forgets what is long past.
    former: dict[str, Former] = {}
    take_over(tmp_path, set(), former)
    assert former["inst_a"].peaks == {10: 2, 11: 1}
    clock[0] += 5 * HOUR_S
    counted["inst_a"] = 3
    told = Activity(tmp_path, former, counted.__getitem__)
    told.opened("inst_a")
    told.let_in("inst_a")
    told.write()
    assert read(tmp_path)["inst_a"].peaks == {11: 1, 16: 3}


def _peak(gateway: GatewayRig, instance_id: str) -> int:
    told = read(gateway.home / "activity").get(instance_id)
    return max(told.peaks.values(), default=0) if told else 0


def tries_get(gateway: GatewayRig, host: str) -> bool:
    try:
        return gateway.get(host).status_code == 200
    except OSError:
        return False
