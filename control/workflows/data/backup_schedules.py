"""Schedules of backups: each that is due is begun, once."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlalchemy.orm import Session

from control.policy import backups as rules
from control.policy import recovery
from control.policy.backups import BackupHistory, BackupOverrides, BackupSchedule
from control.policy.plans import PLANS
from control.work import Operation, Schedule, Workflow, queue, workflow
from control.workflows.data import archiving, copies
from control.workflows.data.backups import create, lane, start
from control.workflows.data.before_change import failed
from control.workflows.instances.fault_isolation import isolated
from storage.data import backup_settings, backups, recovery_windows
from storage.data.backup_settings import Scheduled
from storage.data.backups import Backup
from storage.database import Database, now
from storage.errors import StateConflict
from storage.instances import instances
from storage.instances.instances import Instance

DUE_STATUSES: Final = ("running", "paused")
BEGUN_MAX: Final = 500
"""In one turn; more are begun in the next, a minute later."""
MISSED: Final = (
    "it was not begun in its time: the service was down, or the backup before it still being made"
)
LOST_AFTER: Final = timedelta(minutes=5)
"""A backup under way without work is touched only after this time, so that races settle."""
_PAGE: Final = 500
_log = structlog.get_logger("backups")


@workflow("backups.schedule", deadline_s=300)
def begin_due(op: Operation) -> None:
    restart_lost(op.database)
    begun = 0
    for each, moment in every(op.database, DUE_STATUSES):
        with isolated(each.instance_id):
            if _is_told_otherwise(each):
                _tell(op.database, each, archiving.tell)
            if _copies_are_told_otherwise(each):
                _tell(op.database, each, copies.tell)
            slot = due_slot(each, moment)
            if begun < BEGUN_MAX and (slot is not None or _needs_base(each, moment)):
                begun += _begin(op.database, each, slot)


def due_slot(each: Scheduled, moment: datetime) -> datetime | None:
    """The turn that a backup of the instance is to be begun for now."""
    turns = BackupHistory(
        ready_at=each.ready_at,
        # Later than the pause where something else of it changed: then one too many is made.
        paused_since=each.updated_at if each.status == "paused" else None,
        newest_slot=each.newest_slot,
        newest_data=each.newest_data,
    )
    return rules.due_slot(schedule_of(each), each.instance_id, turns, moment)


def schedule_of(each: Scheduled) -> BackupSchedule:
    chosen = BackupOverrides(each.frequency, each.retention_days, each.window_start)
    return rules.effective(PLANS[each.plan], chosen)


def every(database: Database, statuses: Collection[str]) -> Iterator[tuple[Scheduled, datetime]]:
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


def _is_told_otherwise(each: Scheduled) -> bool:
    """Whether its cell archives its WAL and should not, or the other way round."""
    wanted = recovery.is_archived(PLANS[each.plan], each.engine, each.continuous_archiving)
    return wanted != bool(each.is_archived)


def _copies_are_told_otherwise(each: Scheduled) -> bool:
    """The same of copies of its backups, which need a second store."""
    wanted = rules.is_copied(PLANS[each.plan], each.copy_target)
    return bool(each.has_second_store) and wanted != bool(each.is_copied)


def _tell(database: Database, each: Scheduled, told: Workflow) -> None:
    with database.write() as db:
        instance = instances.fetch(db, each.org_id, each.instance_id)
        start(db, told, instance)


def _needs_base(each: Scheduled, moment: datetime) -> bool:
    """Whether no moment can be restored before a backup is made, and none was begun lately."""
    if each.status != "running" or not each.needs_base:
        return False
    return each.base_asked_at is None or each.base_asked_at + recovery.BASE_REST <= moment


def _begin(database: Database, each: Scheduled, slot: datetime | None) -> int:
    """How many were begun: one, unless the instance or another worker was faster.

    Without a slot it is one that archived WAL is to continue.
    """
    with suppress(StateConflict), database.write() as db:
        instance = instances.fetch(db, each.org_id, each.instance_id, lock=True)
        open_ = backups.first_open(db, instance, "scheduled", "manual")
        if instance.status in DUE_STATUSES and open_ is None:
            backup = backups.request(db, instance, "scheduled", slot=slot)
            if each.needs_base:
                recovery_windows.of_instance(db, instance).base_asked_at = now(db)
            start(db, create, instance, backup_id=backup.id)
            if slot is not None:
                _note_missed(db, instance, each, slot)
            return 1
    return 0


def _note_missed(db: Session, instance: Instance, each: Scheduled, slot: datetime) -> None:
    """As failed, for the health of the month; since the last one, and the instance's last change.

    Before that it may have been paused.
    """
    if each.newest_slot is None:
        return
    since = max(each.newest_slot, each.updated_at, each.ready_at)
    for missed in rules.missed_slots(schedule_of(each), since, slot):
        backup = backups.request(db, instance, "scheduled", slot=missed)
        backup.became_failed(MISSED)
        # Nothing of it was ever in the store.
        backup.became_dropped(now(db))


def restart_lost(database: Database) -> None:
    """Start again what is to make a backup and was lost, as with a database that was restored."""
    with database.read() as db:
        found = backups.open_since(db, now(db) - LOST_AFTER, _PAGE)
    for read in found:
        with isolated(read.instance_id), database.write() as db:
            instance = instances.fetch(db, read.org_id, read.instance_id, lock=True)
            backup = backups.fetch(db, instance, read.id, lock=True)
            if backup.status in backups.OPEN_STATUSES and not _is_worked_at(db, instance, backup):
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


SCHEDULE: Final = Schedule("backups", begin_due, every_s=60)
