"""When a delivery that failed is tried again. Pure: moments in, moments out."""

import email.utils
import random
from datetime import UTC, datetime, timedelta
from typing import Final

FIRST_S: Final = 10.0
MOST_S: Final = 3_600.0
HORIZON: Final = timedelta(hours=24)
"""After its first attempt a delivery is tried no more."""
_DOUBLINGS_MAX: Final = 16
_DIGITS_MAX: Final = 9


def delay_s(failures: int, most_s: float = MOST_S, first_s: float = FIRST_S) -> float:
    """Any time up to one that doubles with every failure (full jitter), `failures` from 1.

    So receivers that come back are not met by all that they missed at once.
    """
    whole = min(first_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX), most_s)
    return random.uniform(0.0, whole)  # noqa: S311 -- spreads load, guards nothing


def next_at(
    now: datetime, failures: int, until: datetime, retry_after: str | None = None
) -> datetime | None:
    """Not before the receiver asks for it, and a last time at `until`; None where that is over."""
    if now >= until:
        return None
    asked = asked_s(retry_after, now)
    wait_s = delay_s(failures) if asked is None else max(asked, delay_s(failures))
    return min(now + timedelta(seconds=min(wait_s, HORIZON.total_seconds())), until)


def asked_s(retry_after: str | None, now: datetime) -> float | None:
    """The seconds of a Retry-After, a number or a date; None where it is neither."""
    text = (retry_after or "").strip()
    if text.isdecimal() and text.isascii():
        return float(text) if len(text) <= _DIGITS_MAX else HORIZON.total_seconds()
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max((moment - now).total_seconds(), 0.0)
