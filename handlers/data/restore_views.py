"""Restores as the JSON that openapi.yaml describes."""

from typing import Any

from handlers.instants import timestamp, timestamp_or_none
from storage.data.restores import Restore

Json = dict[str, Any]


def restore(record: Restore) -> Json:
    return {
        "id": record.id,
        "instance_id": record.instance_id,
        "backup_id": record.backup_id,
        "at": timestamp_or_none(record.at),
        "mode": record.mode,
        "target_instance_id": record.target_instance_id,
        "pre_change_backup_id": record.pre_change_backup_id,
        "from_copy": record.from_copy,
        "status": record.status,
        "status_reason": record.status_reason,
        "progress": None,
        "requested_by": record.requested_by,
        "created_at": timestamp(record.created_at),
        "started_at": timestamp_or_none(record.started_at),
        "completed_at": timestamp_or_none(record.completed_at),
    }
