"""The envelope in which every event is sent: to streams, to webhooks and to SIEMs."""

from datetime import UTC, datetime
from typing import Any

from storage.events.events import Event


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds."""
    in_utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return in_utc.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def envelope(told: Event) -> dict[str, Any]:
    return {
        "id": told.id,
        "type": told.type,
        "time": timestamp(told.time),
        "org_id": told.org_id,
        "data": told.data,
    }
