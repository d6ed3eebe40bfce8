"""Makes backups that are in the store, and restores of them, as tests need them."""

from datetime import datetime, timedelta
from typing import Any

from contract_tests.workflows.fake_cell import FakeCell
from contract_tests.workflows.stage import Stage
from storage.data import backups, restores
from storage.data.backups import Backup
from storage.data.restores import Restore
from storage.database import Database, now
from storage.instances import instances
from storage.instances.instances import Instance


def backup(
    database: Database,
    cell: FakeCell,
    instance: Instance,
    kind: str = "manual",
    *,
    age: timedelta = timedelta(),
    **values: Any,
) -> str:
    """The id of one that was completed so long ago."""
    with database.write() as db:
        made = backups.request(db, instance, kind, **values)
        at = now(db) - age
        told = cell.holds(instance.id, made.id, kind, at)
        made.begin()
        made.became_completed(told)
    return made.id


def fetch(stage: Stage, instance: Instance, backup_id: str) -> Backup:
    with stage.database.read() as db:
        return backups.fetch(db, instance, backup_id)


def restore(stage: Stage, source: Instance, backup_id: str, target: Instance, mode: str) -> str:
    """The id of one that is to be begun."""
    with stage.database.write() as db:
        found = backups.fetch(db, source, backup_id)
        return restores.request(db, found, target, mode, "usr_1").id


def fetch_restore(stage: Stage, instance: Instance, restore_id: str) -> Restore:
    with stage.database.read() as db:
        return restores.fetch(db, instance, restore_id)


def change(stage: Stage, instance: Instance, **values: Any) -> None:
    """Something else has happened to the instance."""
    with stage.database.write() as db:
        row = instances.fetch(db, stage.org_id, instance.id, lock=True)
        for name, value in values.items():
            setattr(row, name, value)


def moment(text: str) -> datetime:
    """Of a day in UTC, as in 2026-11-25T02:00."""
    return datetime.fromisoformat(f"{text}:00+00:00")
