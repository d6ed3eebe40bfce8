"""Budgets: how far a limit of what may be spent in a month is used, be it a team's or a cap."""

from typing import Final

from control.policy.prices import MICRO_CENTS

THRESHOLDS: Final = (50, 80, 100)
"""Percent of a budget."""


def used_percent(micro_cents: int, budget_cents: int | None) -> int | None:
    """Rounded down; None without a budget, and of one of nothing, which has no parts."""
    return micro_cents * 100 // (budget_cents * MICRO_CENTS) if budget_cents else None


def crossed(micro_cents: int, budget_cents: int | None) -> tuple[int, ...]:
    """The thresholds that are reached, lowest first; of nothing, all with the first micro-cent."""
    if budget_cents is None or micro_cents == 0:
        return ()
    spent = micro_cents * 100
    return tuple(each for each in THRESHOLDS if spent >= each * budget_cents * MICRO_CENTS)
