"""Backups and their settings as the JSON that openapi.yaml describes."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from control.policy import backups as rules
from control.policy import recovery
from control.policy.backups import BackupOverrides, BackupSchedule
from control.policy.plans import PLANS
from handlers.calls import OrgCall
from handlers.instants import timestamp, timestamp_or_none
from storage.data import backup_copies, backup_settings
from storage.data.backup_copies import CopyStatus
from storage.data.backup_settings import BackupSettings
from storage.data.backups import Backup
from storage.instances.instances import Instance

Json = dict[str, Any]
_SCHEDULED = frozenset({"running", "paused"})


def of(call: OrgCall, instance: Instance) -> Callable[[Backup], Json]:
    """The view of the instance's backups: when one expires follows from the settings."""
    held = schedule(call, backup_settings.of_instance(call.db, instance))

    def view(record: Backup, /) -> Json:
        return backup(record, held.retention_days)

    return view


def schedule(call: OrgCall, chosen: BackupSettings) -> BackupSchedule:
    """What holds for the instance of these settings."""
    choices = BackupOverrides(chosen.frequency, chosen.retention_days, chosen.window_start)
    return rules.effective(PLANS[call.org.plan], choices)


def backup(record: Backup, retention_days: int) -> Json:
    expires = record.completed_at is not None and record.kind != "manual"
    kept = timedelta(days=retention_days)
    return {
        "id": record.id,
        "instance_id": record.instance_id,
        "kind": record.kind,
        "label": record.label,
        # Earlier versions made full ones, and did not say so.
        "method": record.method or ("full" if record.completed_at else None),
        "parent_id": record.parent_id,
        "status": record.status,
        "status_reason": record.status_reason,
        "engine": record.engine,
        "engine_version": record.engine_version,
        "size": record.size,
        "storage_bytes": record.storage_bytes,
        "size_bytes": record.size_bytes,
        "stored_bytes": record.stored_bytes,
        "extensions": record.extensions or [],
        "sha256": record.sha256,
        "verification": _verification(record),
        "progress": None,
        "requested_by": record.requested_by,
        "created_at": timestamp(record.created_at),
        "started_at": timestamp_or_none(record.started_at),
        "completed_at": timestamp_or_none(record.completed_at),
        "copied_at": timestamp_or_none(record.copied_at),
        "expires_at": timestamp(record.completed_at + kept)
        if expires and record.completed_at
        else None,
    }


def _verification(record: Backup) -> Json | None:
    """With the moment as we write moments, whatever its cell writes."""
    told = record.verification
    at = told and timestamp(datetime.fromisoformat(told["at"]))
    return told and {"notice": None, **told, "at": at}


def health(month: str, ended: tuple[int, int, int], oldest: datetime | None) -> Json:
    completed, failed, verified = ended
    return {
        "month": month,
        "expected": completed + failed,
        "completed": completed,
        "failed": failed,
        "verified": verified,
        "score": rules.score(completed, failed, verified),
        "oldest_restorable_at": timestamp_or_none(oldest),
    }


def settings(call: OrgCall, instance: Instance, chosen: BackupSettings) -> Json:
    plan, held = PLANS[call.org.plan], schedule(call, chosen)
    is_due = instance.status in _SCHEDULED and instance.ready_at is not None
    return {
        "instance_id": instance.id,
        "plan": {
            "frequencies": rules.frequencies(plan),
            "retention_days_max": plan.backup_retention_days,
            "manual_backups_max": plan.manual_backups_max,
            "pitr_days": plan.pitr_days,
            "copy_targets": rules.copy_targets(plan),
        },
        "overrides": {
            "frequency": chosen.frequency,
            "retention_days": chosen.retention_days,
            "window_start": chosen.window_start,
            "continuous_archiving": chosen.continuous_archiving,
            "copy_target": chosen.copy_target,
        },
        "effective": {
            "frequency": held.frequency,
            "retention_days": held.retention_days,
            "window_start": held.window_start,
            "window_end": held.window_end,
            "continuous_archiving": recovery.is_archived(
                plan, instance.engine, chosen.continuous_archiving
            ),
            "copy_target": rules.copy_target(plan, chosen.copy_target),
            "next_backup_at": timestamp(held.next_slot(instance.id, call.now)) if is_due else None,
        },
        "copies": _copies(backup_copies.of_instance(call.db, instance)),
        "updated_by": chosen.updated_by,
        "updated_at": timestamp(chosen.updated_at),
    }


def _copies(told: CopyStatus) -> Json:
    return {
        "status": told.status,
        "status_reason": told.reason,
        "backups_waiting": told.waiting,
        "backups_copied": told.copied,
        "last_copied_at": timestamp_or_none(told.newest_at),
        "restorable_until": timestamp_or_none(told.restorable_until),
        "as_of": timestamp_or_none(told.seen_at),
    }
