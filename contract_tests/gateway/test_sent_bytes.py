"""What is sent out is counted by the hour, once, whichever workers come and go."""

import os
import time
from pathlib import Path

import pytest

from cell.instances import sent_bytes
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import raw_get, until
from gateway.activity import Activity
from gateway.sent_bytes import HOUR_S, KEPT_HOURS, SentBytes

HOUR = int(time.time() // HOUR_S)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the time is, in seconds since 1970."""
    moment = [HOUR * HOUR_S + 1.0]
    monkeypatch.setattr("gateway.sent_bytes.time.time", lambda: moment[0])
    return moment


def test_each_hour_has_what_was_sent_in_it(tmp_path: Path, clock: list[float]) -> None:
    worker = SentBytes(tmp_path)
    worker.write([("a", 5), ("b", 0)])
    worker.write([("a", 7), ("b", 1)])
    clock[0] += HOUR_S
    worker.write([("a", 17), ("b", 1)])
    worker.write([("a", 17), ("b", 1)])
    assert sent_bytes.of_hour(tmp_path, HOUR) == {"a": 7, "b": 1}
    assert sent_bytes.of_hour(tmp_path, HOUR + 1) == {"a": 10}
    assert sent_bytes.of_hour(tmp_path, HOUR + 2) == {}


def test_a_worker_that_is_gone_still_counts_and_another_adds(
    tmp_path: Path, clock: list[float]
) -> None:
    SentBytes(tmp_path).write([("a", 5)])
    for _ in range(2):
        SentBytes(tmp_path).write([("a", 3)])
    assert sent_bytes.of_hour(tmp_path, HOUR) == {"a": 11}
    assert clock


def test_an_instance_that_is_forgotten_and_comes_back_counts_anew(
    tmp_path: Path, clock: list[float]
) -> None:
    worker = SentBytes(tmp_path)
    worker.write([("a", 9)])
    worker.write([])
    worker.write([("a", 4)])
    worker.write([("a", 2)])
    assert sent_bytes.of_hour(tmp_path, HOUR) == {"a": 15}
    assert clock


def test_what_nobody_asks_for_any_more_is_removed(tmp_path: Path, clock: list[float]) -> None:
    worker = SentBytes(tmp_path)
    worker.write([("a", 5)])
    (old,) = tmp_path.iterdir()
    os.utime(old, (clock[0], clock[0]))
    clock[0] += KEPT_HOURS * HOUR_S
    worker.write([("a", 6)])
    assert sent_bytes.of_hour(tmp_path, HOUR) == {}
    assert sent_bytes.of_hour(tmp_path, HOUR + KEPT_HOURS) == {"a": 1}
    os.utime(old, (0, 0))
    SentBytes(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_totals_are_of_open_and_closed_connections(tmp_path: Path) -> None:
    activity = Activity(tmp_path, {}, lambda _: 1)
    one, other = (activity.opened("a", "198.51.100.7", "postgres") for _ in range(2))
    one.bytes_out, other.bytes_out = 5, 7
    activity.closed(one)
    assert dict(activity.totals()) == {"a": 12}


def test_a_real_connection_is_counted(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(egress_s=0.05)
    host = gateway.add_instance("sends")
    with gateway.connect(host) as one:
        raw_get(one, "/bytes/100000")
    hours = range(int(time.time() // HOUR_S) - 1, int(time.time() // HOUR_S) + 2)

    def sent() -> int:
        found = (sent_bytes.of_hour(gateway.home / "sent", hour) for hour in hours)
        return sum(each["inst_sends"] for each in found)

    until(lambda: sent() > 100_000, "what it sent is counted")
