"""How every document of the cell writes a moment."""

from datetime import UTC, datetime

from specserver import Invalid


def moment(seconds: float | None) -> str | None:
    """RFC 3339, UTC, in milliseconds; None where there is none."""
    if not seconds:
        return None
    written = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return written.replace("+00:00", "Z")


def unix(told: str | float | None) -> float | None:
    """Of a moment in a request, unix seconds; those as they are."""
    if not isinstance(told, str):
        return told
    try:
        return datetime.fromisoformat(told.upper()).timestamp()
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{told} is no moment of the calendar") from error
