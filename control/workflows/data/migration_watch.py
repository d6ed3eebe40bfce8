"""Watching migrations: what their cells make of them, and acts on them that were lost."""

from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.policy.migrations import SOURCE_WITHIN
from control.work import Operation, Schedule, Workflow, queue, workflow
from control.workflows.catalogue.cells import cell_of, left_to_the_next_turn
from control.workflows.data import migration_progress as progress
from control.workflows.data import migrations as acts
from control.workflows.instances.fault_isolation import isolated
from storage.data import migrations
from storage.data.migrations import Migration, WatchedMigration
from storage.database import Database, now
from storage.instances import instances
from storage.instances.instances import GONE, Instance

EVERY_S: Final = 2
LOST_AFTER: Final = timedelta(seconds=10)
"""What was asked of a cell is asked again only after this time, so that races settle."""
_PAGE: Final = 200
_LATE: Final = "its source has not arrived within {:.0f} hours"
_log = structlog.get_logger("migrations")


@workflow("migrations.watch", deadline_s=120)
def watch(op: Operation) -> None:
    """Of one cell, all that it runs."""
    cell, after = cell_of(op), ""
    client = op.services.cells.for_cell(cell)
    with left_to_the_next_turn(cell):
        while True:
            with op.database.read() as db:
                found = migrations.watched(db, cell.id, after=after, limit=_PAGE)
            for each in found:
                told = client.migrations(each.instance_id).observe(each.id)
                with isolated(each.instance_id):
                    _record(op.database, each, told)
            if len(found) < _PAGE:
                return
            after = found[-1].id


def _record(database: Database, each: WatchedMigration, told: Answer | None) -> None:
    with database.write() as db:
        instance = instances.fetch(db, each.org_id, each.instance_id, lock=True)
        migration = migrations.fetch(db, instance, each.id, lock=True)
        if instance.desired_status in GONE:
            return
        if told is not None:
            if migration.started_at is not None:
                progress.take_over(db, instance, migration, told)
        elif migration.started_at is not None and not queue.is_open(db, acts.lane(instance.id)):
            progress.is_gone(db, instance, migration)
        _go_on(db, instance, migration, told, now(db))


def _go_on(
    db: Session, instance: Instance, migration: Migration, told: Answer | None, at: datetime
) -> None:
    """Ask again for what the cell has not heard of, and give up what nobody sends a source for."""
    is_late = migration.status == "awaiting_source" and migration.created_at < at - SOURCE_WITHIN
    if is_late:
        migration.give_up(_LATE.format(SOURCE_WITHIN.total_seconds() / 3600))
    wanted = _unheard(migration, told, at - LOST_AFTER)
    if wanted is not None and not queue.is_open(db, acts.lane(instance.id)):
        if not is_late:
            _log.warning("lost work restarted", migration_id=migration.id, kind=wanted.kind)
        # A cell that refuses to cancel is not asked without a pause.
        rest = timedelta() if is_late or wanted is not acts.cancel else LOST_AFTER
        acts.start(db, wanted, instance, migration.id, after_s=rest.total_seconds())


def _unheard(migration: Migration, told: Answer | None, before: datetime) -> Workflow | None:
    """What it waits for since before that moment: what the cell said may be older than the act."""
    said = None if told is None else told["status"]
    if migration.status == "cancelling":
        return None if said == "cancelling" else acts.cancel
    if migration.status == "awaiting_source" and migration.started_at is None:
        return acts.begin if migration.created_at < before else None
    if migration.cutover_at is not None and migration.status == "cutting_over":
        return acts.cutover if said == "syncing" and migration.cutover_at < before else None
    return None


def _lanes(db: Session) -> dict[str, dict[str, Any]]:
    """Of the cells that have any: a lane of its own, as others wait there for the cell."""
    return {
        f"migrations:{cell_id}": {"cell_id": cell_id} for cell_id in migrations.watched_cells(db)
    }


SCHEDULE: Final = Schedule("migrations", watch, every_s=EVERY_S, lanes=_lanes)
