"""Metering: what instances used, by the hour, however often it is read."""

from datetime import timedelta

import pytest

from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import Stage
from storage.columns import EPOCH
from storage.database import now
from storage.instances import samples


def run(stage: Stage, kind: str) -> None:
    with stage.database.write() as db:
        take_turn(db, kind)
    stage.settle()


def test_usage_is_counted_once_per_second_over_hours(stage: Stage) -> None:
    """Readings at any rhythm add up to the time that passed, split where the hour changes."""
    with stage.database.read() as db:
        moment = now(db)
    to_the_hour_s = 3600 - (moment - EPOCH).total_seconds() % 3600
    stage.pass_time(to_the_hour_s + 3600)
    instance = stage.instance("running")
    with stage.database.read() as db:
        began = now(db)
    started = began.isoformat(timespec="milliseconds")
    for cpu_s, wait_s in ((0.0, 600), (60.0, 1200), (100.0, 2400), (10.0, 0)):
        stage.cell.becomes(instance.id, started_at=started, cpu_s=cpu_s, connections=int(cpu_s))
        run(stage, "metering")
        run(stage, "metering")
        stage.pass_time(wait_s)
    with stage.database.read() as db:
        hours = samples.of_instance(
            db,
            stage.org_id,
            instance.id,
            since=began - timedelta(hours=1),
            until=began + timedelta(hours=3),
        )
    assert [hour.running_s for hour in hours] == pytest.approx([3600, 600], abs=30)
    assert [hour.cpu_s for hour in hours] == [100.0, 10.0]
    assert [hour.connections_max for hour in hours] == [100, 10]


def test_a_peak_between_two_readings_is_counted(stage: Stage) -> None:
    """Once, however often it is told; that of an hour's last minute after the hour is over."""
    with stage.database.read() as db:
        moment = now(db)
    stage.pass_time(3600 - (moment - EPOCH).total_seconds() % 3600 + 60)
    instance = stage.instance("running")
    with stage.database.read() as db:
        hour = now(db).replace(minute=0, second=0, microsecond=0)

    def told(*peaks: tuple[int, int]) -> list[int]:
        """What is known after the cell told these peaks, by the hour from the first on, twice."""
        shown = [
            {
                "hour": (hour + timedelta(hours=number)).isoformat(timespec="milliseconds"),
                "connections": connections,
            }
            for number, connections in peaks
        ]
        stage.cell.becomes(instance.id, connections=1, connections_peaks=shown)
        run(stage, "metering")
        run(stage, "metering")
        with stage.database.read() as db:
            found = samples.of_instance(
                db, stage.org_id, instance.id, since=hour, until=hour + timedelta(hours=9)
            )
        return [each.connections_max for each in found]

    assert told((0, 42)) == [42]
    assert told((0, 7)) == [42]
    stage.pass_time(3600)
    # Before it was made, and hours to come, count for nothing.
    assert told((-1, 99), (0, 50), (1, 3), (2, 99)) == [50, 3]


def test_a_paused_instance_uses_storage_and_no_time(stage: Stage) -> None:
    instance = stage.instance("paused")
    run(stage, "metering")
    stage.pass_time(60)
    run(stage, "metering")
    with stage.database.read() as db:
        sample = samples.newest(db, stage.org_id, instance.id)
    assert sample is not None
    assert (sample.running_s, sample.storage_bytes) == (0.0, 4096)
