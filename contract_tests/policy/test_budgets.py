"""How far a budget is used, and which thresholds of it that reaches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy import budgets
from control.policy.prices import MICRO_CENTS, whole_cents


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
    assert (percent >= 100) == (whole_cents(micro_cents) >= budget)
