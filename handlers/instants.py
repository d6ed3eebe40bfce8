"""Moments as callers write and read them."""

from datetime import UTC, datetime, timedelta

from control.events.envelope import timestamp
from specserver import Invalid

__all__ = ["before", "read", "refused", "timestamp", "timestamp_or_none"]


def read(text: str, **place: str) -> datetime:
    """The moment in UTC; `place` is `pointer` or `parameter`, for the refusal.

    The document's `format: date-time` lets through what no calendar has, the year 0 and the 60th
    second among it.
    """
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise refused("is outside the supported range of times", **place) from None


def before(moment: datetime, span: timedelta) -> datetime:
    """As long before a moment as the calendar goes back."""
    return moment - min(span, moment - datetime.min.replace(tzinfo=UTC))


def refused(message: str, *, keyword: str = "date-time", **place: str) -> Invalid:
    about = place.get("parameter") or place.get("pointer")
    return Invalid(f"{about} {message}", errors=[{**place, "keyword": keyword, "message": message}])


def timestamp_or_none(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp(moment)
