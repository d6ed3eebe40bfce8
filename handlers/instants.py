"""Moments as callers write them."""

from datetime import UTC, datetime, timedelta

from specserver import Invalid


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
