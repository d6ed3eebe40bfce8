"""What tests of alerts do with a stage: look, measure, and see what was raised."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, insert, select

from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import Stage
from storage.access.organizations import Organization
from storage.catalogue import cells
from storage.events.alerts import Alert
from storage.events.events import Event
from storage.instances.instances import Instance
from storage.instances.samples import Sample


def look(stage: Stage, kind: str = "alerts.evaluate") -> None:
    with stage.database.write() as db:
        take_turn(db, kind)
    while stage.turn():
        pass


def plan(stage: Stage, name: str) -> None:
    with stage.database.write() as db:
        db.get_one(Organization, stage.org_id).plan = name


def silent_for(stage: Stage, seconds: float | None, cell_id: str = "cell_fake") -> None:
    """None: the cell is to start, and has not been heard of."""
    with stage.database.write() as db:
        cell = cells.fetch(db, cell_id)
        moment = stage.database.now(db)
        cell.expected_at = moment
        cell.last_seen_at = None if seconds is None else moment - timedelta(seconds=seconds)


def measured(stage: Stage, instance: Instance, hours_ago: int, **values: Any) -> None:
    """A sample of that hour, or another one in its place."""
    with stage.database.write() as db:
        moment = stage.database.now(db) - timedelta(hours=hours_ago)
        hour = moment.replace(minute=0, second=0, microsecond=0)
        known = db.get(Sample, (instance.id, hour))
        if known is None:
            known = Sample(instance_id=instance.id, org_id=stage.org_id, hour=hour, seen_at=moment)
            db.add(known)
        for name, value in values.items():
            setattr(known, name, value)


def measured_for_hours(stage: Stage, instance: Instance, used: Sequence[int]) -> None:
    """Only these samples: the storage used in this hour, in the one before, and so on."""
    with stage.database.write() as db:
        db.execute(delete(Sample).where(Sample.instance_id == instance.id))
        moment = stage.database.now(db)
        hour = moment.replace(minute=0, second=0, microsecond=0)
        ids = {"instance_id": instance.id, "org_id": stage.org_id, "seen_at": moment}
        rows = [
            {**ids, "hour": hour - timedelta(hours=ago), "storage_bytes": size}
            for ago, size in enumerate(used)
        ]
        db.execute(insert(Sample), rows)


def alerts(stage: Stage, *kinds: str) -> list[Alert]:
    """All that were raised, or those of these kinds, oldest first."""
    rows = select(Alert).order_by(Alert.id)
    with stage.database.read() as db:
        return list(db.scalars(rows.where(Alert.kind.in_(kinds)) if kinds else rows))


def seen(stage: Stage, *kinds: str) -> list[tuple[str, str, int, bool]]:
    """Of each its kind, its severity, how often it happened and whether it is over."""
    return [
        (one.kind, one.severity, one.occurrences, one.resolved_at is not None)
        for one in alerts(stage, *kinds)
    ]


def told(stage: Stage) -> list[tuple[str, str, str]]:
    """Each event about an alert: its type, and the kind and the severity of the alert."""
    rows = select(Event).where(Event.type.like("alert.%")).order_by(Event.org_id, Event.seq)
    with stage.database.read() as db:
        found = list(db.scalars(rows))
    return [(one.type, one.data["kind"], one.data["severity"]) for one in found]
