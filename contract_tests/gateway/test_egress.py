"""What the gateway reports of the bytes that each connection has sent out."""

import json
import time
from pathlib import Path
from typing import Any

from cell.instances import egress
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.rig import raw_get, until
from gateway.activity import Activity, ConnectionTraffic
from gateway.egress import CONNECTIONS_MAX, FILES_MAX, EgressReports

A = "inst_a"


class Meter:
    """A worker's, without its connections."""

    def __init__(self, directory: Path, *wanted: str) -> None:
        self.directory = directory
        for name in ("egress", "activity"):
            (directory / name).mkdir()
        self.egress = EgressReports(directory / "egress")
        self.activity = Activity(directory / "activity", {}, lambda _: 1, self.egress.ended)
        self.collect(*wanted)
        self.egress.write(self.activity.open_of)

    def connect(self, instance_id: str = A) -> ConnectionTraffic:
        return self.activity.opened(instance_id, "198.51.100.7", "postgres")

    def collect(self, *wanted: str, taken: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        return egress.collect(self.directory / "egress", wanted, taken)

    def reports(self, *wanted: str) -> list[dict[str, Any]]:
        """Written now, and taken."""
        self.egress.write(self.activity.open_of)
        found = self.collect(*wanted)
        self.collect(*wanted, taken=tuple(each["name"] for each in found))
        return [one for each in found for one in each["reports"]]


def test_each_connection_is_told_what_it_sent_since_the_last_time(tmp_path: Path) -> None:
    meter = Meter(tmp_path, A)
    one, two = meter.connect(), meter.connect()
    one.bytes_out, two.bytes_out = 100, 7
    first = meter.reports(A)
    assert [each["bytes_out"] for each in first] == [100, 7]
    assert {each["client_ip"] for each in first} == {"198.51.100.7"}
    one.bytes_out += 50
    (second,) = meter.reports(A)
    assert second["bytes_out"] == 50
    assert second["connection_id"] == first[0]["connection_id"] != first[1]["connection_id"]
    assert meter.reports(A) == []


def test_what_a_connection_sent_before_it_closed_is_told(tmp_path: Path) -> None:
    meter = Meter(tmp_path, A)
    one = meter.connect()
    one.bytes_out = 9
    meter.activity.closed(one)
    assert [each["bytes_out"] for each in meter.reports(A)] == [9]
    meter.activity.write()
    (told,) = json.loads(next((tmp_path / "activity").glob("*.json")).read_bytes()).values()
    assert (told["bytes_out"], told["connections"]) == (9, 0)


def test_nothing_is_written_of_instances_that_nobody_asks_about(tmp_path: Path) -> None:
    meter = Meter(tmp_path, "inst_other")
    one = meter.connect()
    one.bytes_out = 1_000
    for _ in range(2):
        assert meter.reports(A) == [], "what was sent before it was asked about is not told"
    one.bytes_out += 5
    assert [each["bytes_out"] for each in meter.reports(A)] == [5]
    wanted = {"instance_ids": [A], "until": time.time() - 1}
    (tmp_path / "egress" / "wanted.json").write_text(json.dumps(wanted))
    meter.egress.write(meter.activity.open_of)
    one.bytes_out += 5
    meter.egress.write(meter.activity.open_of)
    assert not list((tmp_path / "egress").glob("*-*.json")), "nobody has asked in time"


def test_a_crowd_is_one_sum_beyond_so_many(tmp_path: Path) -> None:
    meter = Meter(tmp_path, A)
    crowd = [meter.connect() for _ in range(CONNECTIONS_MAX + 50)]
    for number, each in enumerate(crowd):
        each.bytes_out = number + 1
    for each in crowd[:10]:
        meter.activity.closed(each)
    told = meter.reports(A)
    assert len(told) == CONNECTIONS_MAX + 1
    assert sum(each["bytes_out"] for each in told) == sum(each.bytes_out for each in crowd)
    assert [each["bytes_out"] for each in told if each["connection_id"] is None] == [50 * 51 // 2]


def test_files_that_nobody_takes_are_bounded(tmp_path: Path) -> None:
    meter = Meter(tmp_path, A)
    one = meter.connect()
    for _ in range(FILES_MAX + 5):
        one.bytes_out += 1
        meter.egress.write(meter.activity.open_of)
    assert len(list((tmp_path / "egress").glob("*-*.json"))) == FILES_MAX
    found = meter.collect(A)
    assert len(found) == FILES_MAX
    assert meter.collect(A) == found, "what was not taken stays"


def test_files_that_cannot_be_read_are_removed(tmp_path: Path) -> None:
    meter = Meter(tmp_path, A)
    (tmp_path / "egress" / "0a0a0a0a-1.json").write_text("{")
    assert meter.collect(A) == []
    assert not (tmp_path / "egress" / "0a0a0a0a-1.json").exists()


def test_a_real_connection_is_told_by_the_address_of_its_client(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(egress_s=0.05)
    host = gateway.add_instance("sends")
    directory = gateway.home / "egress"
    directory.mkdir(exist_ok=True)
    egress.collect(directory, ["inst_sends"], ())
    with gateway.connect(host) as one:
        found: list[dict[str, Any]] = []

        def is_told() -> bool:
            raw_get(one, "/bytes/100000")
            for each in egress.collect(directory, ["inst_sends"], ()):
                found.extend(each["reports"])
            return bool(found)

        until(is_told, "what it sent is told")
    assert found[0]["client_ip"] == "127.0.0.1"
    assert found[0]["protocol"] == "https"
    assert found[0]["instance_id"] == "inst_sends"
    assert found[0]["bytes_out"] > 100
