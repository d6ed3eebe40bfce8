"""Retention: backups that are kept no longer are removed, and what failed ones may have left."""

from datetime import timedelta
from typing import Final

from sqlalchemy.orm import Session

from control.policy import backups as rules
from control.policy import recovery
from control.policy.backups import KeptBackup
from control.policy.plans import PLANS, Plan
from control.policy.recovery import RecoveryBase, moment_ranges
from control.policy.surplus_backups import StoredBackup, surplus_backups
from control.work import Operation, Schedule, workflow
from control.workflows.data.backup_schedules import every, schedule_of
from control.workflows.data.backups import FAILED_REST, drop, start
from control.workflows.instances.fault_isolation import isolated
from storage.access import organizations
from storage.data import backups, recovery_windows, restores
from storage.data.backup_settings import Scheduled
from storage.database import Database, now
from storage.instances import instances
from storage.instances.instances import GONE, STATUSES, Instance

DROPS_MAX: Final = 500
"""Instances that some are removed of in one turn; others have theirs."""


@workflow("backups.expire", deadline_s=300)
def expire_old(op: Operation) -> None:
    for each, moment in every(op.database, STATUSES):
        days = schedule_of(each).retention_days
        if each.oldest_kept is not None and each.oldest_kept + timedelta(days=days) <= moment:
            with isolated(each.instance_id), op.database.write() as db:
                _expire(db, each, days)
    for org_id, plan in _above_their_quota(op.database):
        for one in _surplus(op.database, org_id, plan):
            with isolated(one.instance_id), op.database.write() as db:
                _remove(db, org_id, one, plan)
    with op.database.write() as db:
        for org_id, instance_id in backups.instances_to_drop(db, now(db) - FAILED_REST, DROPS_MAX):
            start(db, drop, instances.fetch(db, org_id, instance_id))


def _expire(db: Session, each: Scheduled, days: int) -> None:
    instance = instances.fetch(db, each.org_id, each.instance_id, lock=True)
    if instance.desired_status in GONE:
        # Until it is erased a deleted instance keeps what it had.
        return
    completed = {backup.id: backup for backup in backups.completed(db, instance)}
    kept = [
        KeptBackup(one.id, one.kind, one.completed_at, one.parent_id)
        for one in completed.values()
        if one.completed_at is not None
    ]
    needed = restores.needed(db, instance) | needed_by_window(db, instance)
    over = rules.expired(kept, days, now(db), needed)
    for backup_id in over:
        completed[backup_id].expire(f"its retention of {days} days is over")
    if over:
        db.flush()
        start(db, drop, instance)


def needed_by_window(db: Session, instance: Instance) -> set[str]:
    """Those without which moments of the window could not be restored any more."""
    days = PLANS[organizations.fetch(db, instance.org_id).plan].pitr_days
    bases = [
        RecoveryBase(one.id, one.consistent_at)
        for one in backups.completed(db, instance)
        if one.consistent_at is not None
    ]
    ranges = moment_ranges(recovery_windows.of_instance(db, instance).ranges)
    return recovery.needed(bases, ranges, days, now(db))


def _above_their_quota(database: Database) -> list[tuple[str, Plan]]:
    with database.read() as db:
        found = [(org, PLANS[plan], taken) for org, plan, taken in backups.stored_by_org(db)]
    return [
        (org_id, plan)
        for org_id, plan, taken in found
        if plan.backup_bytes_max is not None and taken > plan.backup_bytes_max
    ]


def _surplus(database: Database, org_id: str, plan: Plan) -> list[StoredBackup]:
    with database.read() as db:
        stored = [
            StoredBackup(
                *(one.id, one.instance_id, one.kind, one.completed_at, one.stored_bytes),
                parent_id=one.parent_id,
            )
            for one in backups.stored(db, org_id)
            if one.completed_at is not None and one.stored_bytes is not None
        ]
        needed = restores.needed_in(db, org_id)
        for instance_id in {one.instance_id for one in stored}:
            needed |= needed_by_window(db, instances.fetch(db, org_id, instance_id))
        return surplus_backups(plan, stored, needed)


def _remove(db: Session, org_id: str, surplus: StoredBackup, plan: Plan) -> None:
    """Unless something else became of it meanwhile."""
    instance = instances.fetch(db, org_id, surplus.instance_id, lock=True)
    backup = backups.fetch(db, instance, surplus.id, lock=True)
    needed = restores.needed(db, instance) | needed_by_window(db, instance)
    is_needed = surplus.id in needed | {one.parent_id for one in backups.completed(db, instance)}
    if backup.status == "completed" and not is_needed and instance.desired_status not in GONE:
        why = f"the backups of the organization took more than the {plan.id} plan allows"
        backup.expire(why)


SCHEDULE: Final = Schedule("retention", expire_old, every_s=300)
