"""When credits expire, and what a referral is worth."""

from datetime import UTC, datetime
from typing import Final

REFERRAL_CENTS: Final = 2_500
REFERRAL_MONTHS: Final = 12
GRANT_CENTS_MAX: Final = 1_000_000_000


def expiry(now: datetime, months: int) -> datetime:
    """The end of the month, in UTC, that comes so many months after the current one."""
    count = now.astimezone(UTC).year * 12 + now.astimezone(UTC).month - 1 + months + 1
    return datetime(count // 12, count % 12 + 1, 1, tzinfo=UTC)


def referral_reward(paid_cents: int) -> int:
    """What each side is credited after a first invoice of which so much was paid.

    Never more than that, so that nobody is credited more for a referral than was paid for it.
    """
    return min(REFERRAL_CENTS, paid_cents)
