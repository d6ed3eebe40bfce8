"""Schedules of backups: those that are due are begun, and those whose retention is over removed."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlalchemy.orm import Session

from control.policy import backups as rules
from control.policy.backups import BackupOverrides, BackupSchedule, KeptBackup, Turns
from control.policy.plans import PLANS
from control.work import Operation, Schedule, queue, workflow
from control.workflows.data.backups import FAILED_REST, create, drop, lane, start
from control.workflows.data.before_change import failed
from control.workflows.instances.apart import by_itself
from storage.data import backup_settings, backups, restores
from storage.data.backup_settings import Scheduled
from storage.data.backups import Backup
from storage.database import Database, now
from storage.errors import StateConflict
from storage.instances import instances
from storage.instances.instances import STATUSES, Instance

DUE_STATUSES: Final = ("running", "paused")
BEGUN_MAX: Final = 500
"""In one turn; more are begun in the next, a minute later."""
LOST_AFTER: Final = timedelta(minutes=5)
"""A backup under way without work is touched only after this time, so that races settle."""
_PAGE: Final = 500
_log = structlog.get_logger("backups")


@workflow("backups.schedule", deadline_s=300)
def begin_due(op: Operation) -> None:
    restart_lost(op.database)
    begun = 0
    for each, moment in _every(op.database, DUE_STATUSES):
        slot = due_slot(each, moment)
        if slot is None or begun == BEGUN_MAX:
            continue
        with by_itself(each.instance_id):
            begun += _begin(op.database, each, slot)


@workflow("backups.expire", deadline_s=300)
def expire_old(op: Operation) -> None:
    for each, moment in _every(op.database, STATUSES):
        days = _schedule(each).retention_days
        if each.oldest_kept is not None and each.oldest_kept + timedelta(days=days) <= moment:
            with by_itself(each.instance_id), op.database.write() as db:
                _expire(db, each, days)
    with op.database.write() as db:
        for org_id, instance_id in backups.instances_to_drop(db, now(db) - FAILED_REST, _PAGE):
            start(db, drop, instances.fetch(db, org_id, instance_id))


def due_slot(each: Scheduled, moment: datetime) -> datetime | None:
    """The turn that a backup of the instance is to be begun for now."""
    turns = Turns(
        ready_at=each.ready_at,
        # Later than the pause where something else of it changed: then one too many is made.
        paused_since=each.updated_at if each.status == "paused" else None,
        newest_slot=each.newest_slot,
        newest_data=each.newest_data,
    )
    return rules.due_slot(_schedule(each), each.instance_id, turns, moment)


def _schedule(each: Scheduled) -> BackupSchedule:
    chosen = BackupOverrides(each.frequency, each.retention_days, each.window_start)
    return rules.effective(PLANS[each.plan], chosen)


def _every(database: Database, statuses: Collection[str]) -> Iterator[tuple[Scheduled, datetime]]:
    """Each instance that a schedule concerns, and the moment at which it was read."""
    after = ""
    while True:
        with database.read() as db:
            moment = now(db)
            found = backup_settings.scheduled(db, statuses, after=after, limit=_PAGE)
        for each in found:
            yield each, moment
        if len(found) < _PAGE:
            return
        after = found[-1].instance_id


def _begin(database: Database, each: Scheduled, slot: datetime) -> int:
    """How many were begun: one, unless the instance or another worker was faster."""
    with suppress(StateConflict), database.write() as db:
        instance = instances.fetch(db, each.org_id, each.instance_id, lock=True)
        open_ = backups.under_way(db, instance, "scheduled", "manual")
        if instance.status in DUE_STATUSES and open_ is None:
            backup = backups.request(db, instance, "scheduled", slot=slot)
            start(db, create, instance, backup_id=backup.id)
            return 1
    return 0


def _expire(db: Session, each: Scheduled, days: int) -> None:
    instance = instances.fetch(db, each.org_id, each.instance_id, lock=True)
    if instance.desired_status in instances.GONE:
        # Until it is erased a deleted instance keeps what it had.
        return
    completed = {backup.id: backup for backup in backups.completed(db, instance)}
    kept = [
        KeptBackup(one.id, one.kind, one.completed_at)
        for one in completed.values()
        if one.completed_at is not None
    ]
    over = rules.expired(kept, days, now(db), restores.needed(db, instance))
    for backup_id in over:
        completed[backup_id].expire(f"its retention of {days} days is over")
    if over:
        db.flush()
        start(db, drop, instance)


def restart_lost(database: Database) -> None:
    """Start again what is to make a backup and was lost, as with a database that was restored."""
    with database.read() as db:
        found = backups.open_since(db, now(db) - LOST_AFTER, _PAGE)
    for read in found:
        with by_itself(read.instance_id), database.write() as db:
            instance = instances.fetch(db, read.org_id, read.instance_id, lock=True)
            backup = backups.fetch(db, instance, read.id, lock=True)
            if backup.status in backups.UNDER_WAY and not _is_worked_at(db, instance, backup):
                _restart(db, instance, backup)


def _is_worked_at(db: Session, instance: Instance, backup: Backup) -> bool:
    before_change = backup.kind == "pre_change"
    return queue.is_open(db, instance.id if before_change else lane(create, instance.id))


def _restart(db: Session, instance: Instance, backup: Backup) -> None:
    _log.warning("lost work restarted", instance_id=instance.id, backup_id=backup.id)
    if backup.kind == "pre_change":
        failed(db, instance, backup, "the change that it was made for was given up")
    else:
        start(db, create, instance, backup_id=backup.id)


BACKUPS: Final = Schedule("backups", begin_due, every_s=60)
RETENTION: Final = Schedule("retention", expire_old, every_s=300)
