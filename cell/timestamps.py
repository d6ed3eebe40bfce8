"""How every document of the cell writes a moment."""

from datetime import UTC, datetime


def moment(seconds: float | None) -> str | None:
    """RFC 3339, UTC, in milliseconds; None where there is none."""
    if not seconds:
        return None
    written = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return written.replace("+00:00", "Z")


def unix(told: str | float | None) -> float | None:
    """Of a moment in a request, unix seconds; those as they are."""
    return datetime.fromisoformat(told).timestamp() if isinstance(told, str) else told
