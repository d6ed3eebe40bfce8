"""The forecast of storage: right where data grows, unmoved by noise, silent on little data."""

import math
from datetime import UTC, datetime, timedelta

from hypothesis import assume, given
from hypothesis import strategies as st

from control.policy.storage_forecast import (
    READINGS_MIN,
    SPAN_MIN,
    WINDOW,
    UsedStorage,
    bytes_a_day,
    days_until_full,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MB = 10**6
WEEK = WINDOW // HOUR


def growing(hours: int, a_day: float, begin: int = 1000 * MB) -> list[UsedStorage]:
    """One reading an hour, until now."""
    return [
        UsedStorage(NOW - (hours - number) * HOUR, int(begin + number * a_day / 24))
        for number in range(hours + 1)
    ]


rates = st.floats(min_value=1 * MB, max_value=1000 * MB)


@given(rates, st.integers(min_value=24, max_value=WEEK))
def test_what_grows_steadily_is_foretold(a_day: float, hours: int) -> None:
    found = bytes_a_day(growing(hours, a_day), NOW)
    assert found is not None
    assert math.isclose(found, a_day, rel_tol=0.01)


@given(rates, st.lists(st.floats(min_value=-0.5, max_value=0.5), min_size=WEEK + 1))
def test_noise_hardly_changes_it(a_day: float, noise: list[float]) -> None:
    """Of half of an hour's growth in either direction, over a week."""
    noisy = [
        UsedStorage(each.at, int(each.used_bytes + part * a_day / 24))
        for each, part in zip(growing(WEEK, a_day), noise, strict=False)
    ]
    found = bytes_a_day(noisy, NOW)
    assert found is not None
    assert math.isclose(found, a_day, rel_tol=0.1)


@given(rates, st.sets(st.integers(min_value=0, max_value=WEEK), max_size=12))
def test_a_few_wrong_readings_hardly_change_it(a_day: float, wrong: set[int]) -> None:
    """Peaks of whatever height; a fall back to what was before is less than a deletion."""
    readings = [
        each._replace(used_bytes=int(each.used_bytes * 1.2)) if number in wrong else each
        for number, each in enumerate(growing(WEEK, a_day, begin=10_000 * MB))
    ]
    found = bytes_a_day(readings, NOW)
    assert found is not None
    assert math.isclose(found, a_day, rel_tol=0.15)


@given(st.integers(min_value=0, max_value=10_000 * MB))
def test_what_does_not_grow_is_never_full(used: int) -> None:
    readings = [each._replace(used_bytes=used) for each in growing(WEEK, 0)]
    assert bytes_a_day(readings, NOW) == 0
    assert days_until_full(used, used + 1, 0) == math.inf
    assert days_until_full(used, used, 0) == 0


@given(rates, st.integers(min_value=0, max_value=23))
def test_it_says_nothing_of_less_than_a_day(a_day: float, hours: int) -> None:
    assert bytes_a_day(growing(hours, a_day), NOW) is None


def test_nor_of_two_points_however_far_apart() -> None:
    readings = growing(WEEK, 100 * MB)
    assert bytes_a_day([readings[0], readings[-1]], NOW) is None
    assert bytes_a_day([], NOW) is None
    spread = readings[:: WEEK // (READINGS_MIN - 1)][:READINGS_MIN]
    assert bytes_a_day(spread, NOW) is not None
    assert bytes_a_day(spread[:-1], NOW) is None


@given(
    rates,
    st.integers(min_value=30, max_value=WEEK - 1),
    st.floats(min_value=0, max_value=0.75),
)
def test_after_a_deletion_only_what_followed_counts(a_day: float, hours: int, left: float) -> None:
    before = growing(WEEK, 900 * MB, begin=100_000 * MB)[: WEEK - hours]
    after = growing(hours, a_day, begin=int(100_000 * MB * left))
    found = bytes_a_day([*before, *after], NOW)
    assert found is not None
    assert math.isclose(found, a_day, rel_tol=0.01)


@given(rates, st.integers(min_value=0, max_value=22))
def test_after_a_deletion_it_says_nothing_for_a_day(a_day: float, hours: int) -> None:
    before = growing(WEEK, 900 * MB, begin=100_000 * MB)[: WEEK - hours]
    after = growing(hours, a_day, begin=1000 * MB)
    assert bytes_a_day([*before, *after], NOW) is None


@given(rates, st.integers(0, WEEK), st.integers(0, WEEK))
def test_hours_that_were_not_measured_change_nothing(a_day: float, one: int, other: int) -> None:
    first, last = min(one, other), max(one, other)
    readings = growing(WEEK, a_day)
    kept = readings[:first] + readings[last:]
    assume(len(kept) >= READINGS_MIN and kept[-1].at - kept[0].at >= SPAN_MIN)
    found = bytes_a_day(kept, NOW)
    assert found is not None
    assert math.isclose(found, a_day, rel_tol=0.01)


@given(rates, st.permutations(range(48)))
def test_neither_their_order_nor_what_is_older_or_not_yet_matters(
    a_day: float, order: list[int]
) -> None:
    """A clock that was wrong for a while leaves readings of the future."""
    readings = growing(47, a_day)
    strange = [UsedStorage(NOW + HOUR, 10**15), UsedStorage(NOW - WINDOW - HOUR, 10**15)]
    found = bytes_a_day([*(readings[place] for place in order), *strange], NOW)
    assert found == bytes_a_day(readings, NOW)


def test_days_are_what_is_left_by_what_is_added() -> None:
    assert days_until_full(400, 1000, 200) == 3
    assert days_until_full(1200, 1000, 200) == 0
    assert days_until_full(400, 1000, -200) == math.inf
