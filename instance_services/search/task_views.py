"""Owns what an answer shows of a task."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import orjson

COLUMNS: Final = (
    "uid, index_uid, type, status, details, error, canceled_by, enqueued_at, started_at,"
    " finished_at, batch_uid"
)
"""Of the table of tasks, in the order that `view` reads them."""


def view(row: Sequence[Any]) -> dict[str, Any]:
    uid, index_uid, kind, status, details, error, canceled_by = row[:7]
    enqueued, started, finished, batch_uid = row[7:]
    return {
        "uid": uid,
        "batchUid": batch_uid,
        "indexUid": index_uid,
        "status": status,
        "type": kind,
        "canceledBy": canceled_by,
        "details": orjson.loads(details) if details else None,
        "error": orjson.loads(error) if error else None,
        "duration": duration(started, finished),
        "enqueuedAt": enqueued,
        "startedAt": started,
        "finishedAt": finished,
    }


def duration(started: str | None, finished: str | None) -> str | None:
    """As ISO 8601 has it: `PT0.012345S`."""
    if started is None or finished is None:
        return None
    spent = datetime.fromisoformat(finished) - datetime.fromisoformat(started)
    return f"PT{max(0.0, spent.total_seconds()):.6f}S"
