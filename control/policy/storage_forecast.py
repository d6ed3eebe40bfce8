"""When an instance's storage will be full, from a week of hourly readings.

The slope is the median of the slopes between all pairs of readings (Theil and Sen): up to a quarter
of them can be wrong by any amount, or missing, and it hardly changes.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import combinations
from statistics import median
from typing import Final, NamedTuple

WINDOW: Final = timedelta(days=7)
SPAN_MIN: Final = timedelta(days=1)
"""Nothing is said of less."""
READINGS_MIN: Final = 12
_BUCKET_S: Final = 4 * 3600
_RESET: Final = 0.8
"""Falling below that part of the reading before, data was deleted: what was before says nothing."""
_DAY_S: Final = 86_400


class UsedStorage(NamedTuple):
    at: datetime
    used_bytes: int


def bytes_a_day(readings: Sequence[UsedStorage], now: datetime) -> float | None:
    """By how much it grows (or shrinks, < 0); None where there is too little to say so."""
    recent = sorted(each for each in readings if now - WINDOW <= each.at <= now)
    since_reset = _since_reset(recent)
    if len(since_reset) < READINGS_MIN or since_reset[-1].at - since_reset[0].at < SPAN_MIN:
        return None
    points = _thinned(since_reset)
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2)]
    return median(slopes) * _DAY_S


def days_until_full(used_bytes: int, limit_bytes: int, a_day: float) -> float:
    """Infinite where it does not grow."""
    left = limit_bytes - used_bytes
    if left <= 0:
        return 0
    return left / a_day if a_day > 0 else math.inf


def _since_reset(readings: Sequence[UsedStorage]) -> Sequence[UsedStorage]:
    begin = 0
    for place in range(1, len(readings)):
        if readings[place].used_bytes < _RESET * readings[place - 1].used_bytes:
            begin = place
    return readings[begin:]


def _thinned(readings: Sequence[UsedStorage]) -> list[tuple[float, float]]:
    """A point for every four hours, so that a week has 42 of them and not 14,000 pairs."""
    buckets: dict[int, list[UsedStorage]] = {}
    for each in readings:
        buckets.setdefault(int(each.at.timestamp()) // _BUCKET_S, []).append(each)
    return [
        (median(one.at.timestamp() for one in many), median(one.used_bytes for one in many))
        for many in buckets.values()
    ]
