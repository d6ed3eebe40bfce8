"""What a month costs, to the micro-cent, and which thresholds of a budget that reaches."""

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy import budgets, prices
from control.policy.budgets import MICRO_CENTS, Month, Spend
from control.policy.sizes import GB, SIZES
from storage.columns import EPOCH

FEBRUARY = budgets.month_of(datetime(2026, 2, 14, 12, tzinfo=UTC))
JANUARY = budgets.month_of(datetime(2026, 1, 31, 23, 59, 59, 999_000, tzinfo=UTC))
MOMENTS = st.integers(1_577_836_800_000, 4_102_444_800_000).map(
    lambda ms: EPOCH + timedelta(milliseconds=ms)
)


class Usage(NamedTuple):
    size: str
    storage_bytes: int
    runs: bool
    seconds: int
    lasting: int


USAGES = st.builds(
    Usage,
    size=st.sampled_from(sorted(SIZES)),
    storage_bytes=st.integers(1, 100).map(lambda n: n * GB),
    runs=st.booleans(),
    seconds=st.integers(0, 10**9),
    lasting=st.integers(0, 1000),
)


def rate(usage: Usage) -> int:
    return prices.month_usd_cents(SIZES[usage.size], usage.storage_bytes, runs=usage.runs)


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
    month = budgets.month_of(moment)
    assert (month.name, month.seconds) == (name, days * 86_400)
    assert month.begin <= moment < month.end


@given(MOMENTS)
def test_months_follow_each_other_without_a_gap(moment: datetime) -> None:
    month = budgets.month_of(moment)
    following = budgets.month_of(month.end)
    assert month.begin <= moment < month.end
    assert following.begin == month.end
    before = budgets.month_of(month.begin - timedelta(microseconds=1))
    assert before.end == month.begin


@pytest.mark.parametrize("month", [FEBRUARY, JANUARY])
@pytest.mark.parametrize("size", SIZES.values())
def test_a_whole_month_costs_the_price_of_a_month(month: Month, size: object) -> None:
    of = SIZES[getattr(size, "name", "")]
    usage = Usage(of.name, of.storage_bytes_included, True, month.seconds, 0)
    spent = budgets.spend(month, [usage], month.end)
    assert spent == Spend(of.price_usd_cents * MICRO_CENTS, of.price_usd_cents * MICRO_CENTS)


def test_of_what_is_paused_only_storage_beyond_what_is_included_is_paid() -> None:
    size = SIZES["s0"]
    included, more = size.storage_bytes_included, size.storage_bytes_included + 2 * GB
    for stored, cents in ((included, 0), (more, 24)):
        usage = Usage("s0", stored, False, JANUARY.seconds, 0)
        assert budgets.spend(JANUARY, [usage], JANUARY.end).month_to_date == cents * MICRO_CENTS


@given(MOMENTS, st.lists(USAGES, max_size=20))
def test_a_sum_is_exact_and_rounded_once(moment: datetime, usages: list[Usage]) -> None:
    month = budgets.month_of(moment)
    exact = sum((Fraction(rate(each) * each.seconds) for each in usages), Fraction())
    passed = (moment - month.begin) // timedelta(seconds=1)
    to_come = sum(rate(each) * each.lasting * (month.seconds - passed) for each in usages)
    told = budgets.spend(month, usages, moment)
    assert told.month_to_date == exact * MICRO_CENTS // month.seconds
    assert told.forecast == (exact + to_come) * MICRO_CENTS // month.seconds
    assert 0 <= told.month_to_date <= told.forecast


@given(MOMENTS, USAGES)
def test_what_lasts_all_month_is_forecast_at_its_price_at_every_moment(
    moment: datetime, usage: Usage
) -> None:
    month = budgets.month_of(moment)
    passed = (moment - month.begin) // timedelta(seconds=1)
    lasting = usage._replace(seconds=passed * usage.lasting)
    told = budgets.spend(month, [lasting], moment)
    assert told.forecast == rate(usage) * usage.lasting * MICRO_CENTS


@given(USAGES, st.integers(0, 10**9))
def test_however_time_is_cut_its_cost_is_the_same(usage: Usage, cut: int) -> None:
    cut = min(cut, usage.seconds)
    pieces = [usage._replace(seconds=cut), usage._replace(seconds=usage.seconds - cut, lasting=0)]
    assert budgets.spend(JANUARY, pieces, JANUARY.end) == budgets.spend(
        JANUARY, [usage], JANUARY.end
    )


@pytest.mark.parametrize(
    ("micro_cents", "budget", "percent", "crossed"),
    [
        (0, None, None, ()),
        (10**12, None, None, ()),
        (0, 0, None, ()),
        (1, 0, None, (50, 80, 100)),
        (0, 100, 0, ()),
        (50 * MICRO_CENTS - 1, 100, 49, ()),
        (50 * MICRO_CENTS, 100, 50, (50,)),
        (80 * MICRO_CENTS - 1, 100, 79, (50,)),
        (80 * MICRO_CENTS, 100, 80, (50, 80)),
        (100 * MICRO_CENTS - 1, 100, 99, (50, 80)),
        (100 * MICRO_CENTS, 100, 100, (50, 80, 100)),
        (250 * MICRO_CENTS, 100, 250, (50, 80, 100)),
    ],
)
def test_how_far_a_budget_is_used(
    micro_cents: int, budget: int | None, percent: int | None, crossed: tuple[int, ...]
) -> None:
    assert budgets.used_percent(micro_cents, budget) == percent
    assert budgets.crossed(micro_cents, budget) == crossed


@given(st.integers(0, 10**14), st.integers(1, 10**7))
def test_figures_agree_with_each_other(micro_cents: int, budget: int) -> None:
    """Who is shown 80 % is told of 80 %, and whose spend is shown as the budget, of 100 %."""
    percent = budgets.used_percent(micro_cents, budget)
    assert percent is not None
    assert budgets.crossed(micro_cents, budget) == tuple(
        each for each in budgets.THRESHOLDS if percent >= each
    )
    assert (percent >= 100) == (budgets.whole_cents(micro_cents) >= budget)
