"""Months of the calendar, which follow each other without a gap."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy.months import month_of, months
from storage.columns import EPOCH

MOMENTS = st.integers(1_577_836_800_000, 4_102_444_800_000).map(
    lambda ms: EPOCH + timedelta(milliseconds=ms)
)


@pytest.mark.parametrize(
    ("moment", "name", "days"),
    [
        (datetime(2026, 2, 1, tzinfo=UTC), "2026-02", 28),
        (datetime(2028, 2, 29, 23, 59, 59, 999_000, tzinfo=UTC), "2028-02", 29),
        (datetime(2026, 4, 30, tzinfo=UTC), "2026-04", 30),
        (datetime(2026, 12, 31, 23, tzinfo=UTC), "2026-12", 31),
        # Where it is still the year before.
        (datetime(2026, 12, 31, 20, tzinfo=timezone(timedelta(hours=-5))), "2027-01", 31),
    ],
)
def test_a_month_is_one_of_the_calendar_in_utc(moment: datetime, name: str, days: int) -> None:
    month = month_of(moment)
    assert (month.name, month.seconds) == (name, days * 86_400)
    assert month.begin <= moment < month.end


@given(MOMENTS)
def test_months_follow_each_other_without_a_gap(moment: datetime) -> None:
    month = month_of(moment)
    assert month.begin <= moment < month.end
    assert month_of(month.end).begin == month.end
    assert month_of(month.begin - timedelta(microseconds=1)).end == month.begin
    assert month.seconds_left(month.begin) == month.seconds
    assert month.seconds_left(month.end - timedelta(microseconds=1)) == 1


@given(MOMENTS, st.integers(0, 10**10))
def test_a_time_is_covered_by_the_months_that_it_touches(since: datetime, length_ms: int) -> None:
    until = since + timedelta(milliseconds=length_ms)
    found = list(months(since, until))
    assert [each.begin for each in found[1:]] == [each.end for each in found[:-1]]
    assert all(each.begin < until and each.end > since for each in found)
    assert not found or (found[0].begin <= since and found[-1].end >= until)
    assert bool(found) == (since < until)
