"""Metering: what each instance uses, read from its cell every minute, and used by the hour."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.work import Operation, Schedule, workflow
from control.workflows.catalogue.cells import cell_of, in_lanes, left_to_the_next_turn
from control.workflows.instances.fault_isolation import isolated
from storage.catalogue.cells import Cell
from storage.database import Database, now
from storage.instances import instances, readings, samples
from storage.instances.instances import Instance
from storage.instances.samples import Sample

EVERY_S: Final = 60
HOUR: Final = timedelta(hours=1)


@workflow("metering", deadline_s=120)
def meter(op: Operation) -> None:
    """Of one cell."""
    cell = cell_of(op)
    with left_to_the_next_turn(cell):
        meter_cell(op, cell)


def meter_cell(op: Operation, cell: Cell) -> None:
    told = op.services.cells.for_cell(cell).observations()
    with op.database.read() as db:
        by_id = {instance.id: instance for instance in instances.of_cell(db, cell.id)}
    observations = [each for each in told if each["instance_id"] in by_id]
    try:
        _meter(op.database, by_id, observations)
    except Exception:  # noqa: BLE001 - one of them is not as it must be, and which, is seen now
        for each in observations:
            with isolated(each["instance_id"]):
                _meter(op.database, by_id, [each])


def _meter(
    database: Database, by_id: Mapping[str, Instance], observations: Sequence[Answer]
) -> None:
    with database.write() as db:
        moment = now(db)
        for observation in observations:
            instance = by_id.get(observation["instance_id"])
            if instance is not None and observation["status"] != "erased":
                _add(db, instance, observation, moment)
                readings.note(db, instance, observation, moment)


def _add(db: Session, instance: Instance, observation: Answer, moment: datetime) -> None:
    """Count what passed since the last reading, once: the reading's moment moves with it."""
    hour = moment.replace(minute=0, second=0, microsecond=0)
    last = samples.newest(db, instance.org_id, instance.id)
    cpu_s = float(observation.get("cpu_s") or 0)
    since = _running_since(observation, last, moment)
    before = last.cpu_s_seen if last is not None else 0.0
    # A counter that fell began anew with a restarted engine.
    used_s = cpu_s - before if cpu_s >= before else cpu_s
    if last is not None and last.hour < hour:
        _close(last, since)
    if last is None or last.hour < hour:
        last = Sample(
            instance_id=instance.id,
            org_id=instance.org_id,
            hour=hour,
            storage_bytes=0,
            connections_max=0,
            memory_bytes=0,
            cpu_s=0.0,
            running_s=0.0,
        )
        db.add(last)
    last.storage_bytes = max(last.storage_bytes, observation.get("storage_bytes") or 0)
    last.memory_bytes = max(last.memory_bytes, observation.get("memory_bytes") or 0)
    last.connections_max = max(last.connections_max, observation.get("connections") or 0)
    last.cpu_s += used_s
    if since is not None:
        last.running_s += (moment - max(since, hour)).total_seconds()
    last.cpu_s_seen = cpu_s
    last.seen_at = moment
    _add_peaks(db, last, observation)


def _add_peaks(db: Session, current: Sample, observation: Answer) -> None:
    """The most connections at once of this hour and of those that were not read to their end."""
    for told in observation.get("connections_peaks") or []:
        hour = datetime.fromisoformat(told["hour"])
        sample = current
        if hour < current.hour:
            earlier = db.get(Sample, (current.instance_id, hour))
            if earlier is None:
                continue
            sample = earlier
        if hour == sample.hour:
            sample.connections_max = max(sample.connections_max, told["connections"])


def _running_since(observation: Answer, last: Sample | None, moment: datetime) -> datetime | None:
    """From when on the instance ran without our having counted it; None when it does not run."""
    if observation["status"] != "running" or not observation.get("started_at"):
        return None
    started = datetime.fromisoformat(observation["started_at"])
    counted = last.seen_at if last is not None else started
    return min(max(started, counted), moment)


def _close(sample: Sample, since: datetime | None) -> None:
    """Give the earlier hour its share of the time that passed since its last reading."""
    end = sample.hour + HOUR
    if since is not None and since < end:
        sample.running_s += (end - since).total_seconds()


SCHEDULE: Final = Schedule("metering", meter, every_s=EVERY_S, lanes=in_lanes)
