"""When a request is sent again, and how long to wait before it."""

import email.utils
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

BUSY: Final = 429
RATE_LIMITED: Final = "the rate limit is used up"
IN_FLIGHT: Final = 409
UNAVAILABLE: Final = frozenset({502, 503, 504})


@dataclass(frozen=True)
class Retries:
    """Exponential back-off with full jitter. A Retry-After is obeyed, up to `patience_s`."""

    attempts_max: int = 5
    first_s: float = 0.2
    ceiling_s: float = 8.0
    patience_s: float = 60.0
    sleep: Callable[[float], None] | None = None
    notice: Callable[[float, str], None] | None = None

    def after_answer(
        self, attempt: int, status: int, retry_after_s: float | None, *, repeatable: bool
    ) -> float | None:
        """Answer the seconds to wait before another attempt; None where there is none to be."""
        worthwhile = (
            status == BUSY
            or (status in UNAVAILABLE and repeatable)
            # Our own first attempt, whose connection broke, may still be at work.
            or (status == IN_FLIGHT and repeatable and attempt > 1 and retry_after_s is not None)
        )
        if not worthwhile or (retry_after_s or 0) > self.patience_s:
            return None
        return self._delay_s(attempt, retry_after_s)

    def after_break(self, attempt: int, *, sent: bool, repeatable: bool) -> float | None:
        """Answer the same for a connection that broke; one never made can always be made again."""
        return self._delay_s(attempt, None) if repeatable or not sent else None

    def _delay_s(self, attempt: int, retry_after_s: float | None) -> float | None:
        if attempt >= self.attempts_max:
            return None
        span_s = min(self.ceiling_s, self.first_s * 2.0**attempt)
        jitter_s = random.uniform(0.0, span_s)  # noqa: S311  spreads clients, guards nothing
        return jitter_s if retry_after_s is None else retry_after_s + jitter_s / 10

    @staticmethod
    def reason(status: int) -> str:
        return RATE_LIMITED if status == BUSY else f"answered {status}"

    def pause(self, delay_s: float, reason: str) -> None:
        if self.notice is not None:
            self.notice(delay_s, reason)
        (self.sleep or time.sleep)(delay_s)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Answer the header's seconds; a date counts from now."""
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
