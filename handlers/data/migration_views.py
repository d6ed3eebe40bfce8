"""Migrations as the JSON that openapi.yaml describes."""

from typing import Any

from handlers.instants import timestamp, timestamp_or_none
from storage.data.migrations import Migration

Json = dict[str, Any]


def whole(record: Migration) -> Json:
    """With what may be long."""
    return {
        **listed(record),
        "preflight": record.preflight,
        "verification": record.verification,
    }


def listed(record: Migration) -> Json:
    return {
        "id": record.id,
        "instance_id": record.instance_id,
        "source": {
            "kind": record.source_kind,
            "format": record.source_format,
            "table": record.source_table,
        },
        "mode": record.mode,
        "dry_run": record.dry_run,
        "status": record.status,
        "status_reason": record.status_reason,
        "source_received_at": timestamp_or_none(record.source_received_at),
        "preflight": None,
        "progress": record.progress,
        "verification": None,
        "keep_way_back_s": record.keep_way_back_s,
        "way_back_until": timestamp_or_none(record.way_back_until),
        "requested_by": record.requested_by,
        "created_at": timestamp(record.created_at),
        "started_at": timestamp_or_none(record.started_at),
        "completed_at": timestamp_or_none(record.completed_at),
    }
