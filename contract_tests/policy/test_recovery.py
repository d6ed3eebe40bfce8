"""Which instances can be recovered to a moment, to which, and from which backups."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from control.policy import recovery
from control.policy.plans import FREE, TEAM, Plan
from control.policy.recovery import MomentRange, RecoveryBase
from control.policy.violations import Violation

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)


def hours(count: float) -> datetime:
    """After noon."""
    return NOON + timedelta(hours=count)


def between(begins: float, ends: float) -> MomentRange:
    return MomentRange(hours(begins), hours(ends))


def test_it_is_on_where_it_can_be() -> None:
    assert recovery.is_archived(TEAM, "postgres", None)
    assert recovery.is_archived(TEAM, "timescaledb", chosen=True)
    assert recovery.is_archived(replace(FREE, pitr_days=1), "postgres", chosen=True)
    assert not recovery.is_archived(TEAM, "postgres", chosen=False)
    assert not recovery.is_archived(TEAM, "duckdb", chosen=True)
    assert not recovery.is_archived(FREE, "postgres", chosen=True)


@pytest.mark.parametrize(
    ("plan", "engine", "asked"),
    [(TEAM, "postgres", True), (TEAM, "duckdb", False), (FREE, "duckdb", None)],
)
def test_it_can_be_turned_on_where_it_is_possible_and_off_everywhere(
    plan: Plan, engine: str, asked: bool | None
) -> None:
    assert recovery.check_archiving(plan, engine, asked) == []


@pytest.mark.parametrize(
    ("plan", "engine", "keyword", "message"),
    [
        (
            TEAM, "duckdb", "engine",
            "duckdb does not support point-in-time recovery; leave it out",
        ),
        (
            FREE, "postgres", "plan",
            "the free plan has no point-in-time recovery; change the plan",
        ),
        (
            FREE, "duckdb", "engine",
            "duckdb does not support point-in-time recovery; leave it out",
        ),
    ],
)  # fmt: skip
def test_turning_it_on_must_be_possible(
    plan: Plan, engine: str, keyword: str, message: str
) -> None:
    assert recovery.check_archiving(plan, engine, asked=True) == [
        Violation(pointer="/continuous_archiving", keyword=keyword, message=message)
    ]


def test_the_window_goes_back_as_far_as_the_plan() -> None:
    told = [between(-80, -60), between(-50, -30), between(-20, 0)]
    assert recovery.window(told, 2, NOON) == [between(-48, -30), between(-20, 0)]
    assert recovery.window(told, 0, NOON) == []
    assert recovery.window([], 7, NOON) == []
    assert recovery.window([between(-60, -48)], 2, NOON) == [], "it ends where the window begins"


def test_a_moment_is_in_a_range_or_newer_than_what_was_told() -> None:
    found = [between(-50, -30), between(-20, -0.01)]
    moments = {-60: False, -50: True, -30: True, -25: False, -20: True, -0.01: True, 0: True}
    for count, possible in moments.items():
        assert recovery.can_restore(hours(count), found, NOON) is possible, count
    assert not recovery.can_restore(hours(0.001), found, NOON), "it is yet to come"
    assert not recovery.can_restore(hours(-0.5), [between(-20, -1)], NOON), "told long ago"
    assert not recovery.can_restore(NOON, [], NOON)


def test_the_newest_backup_before_a_moment_is_taken() -> None:
    bases = [RecoveryBase(str(count), hours(count)) for count in (-3, -1, -2)]
    assert recovery.base_for(bases, hours(-1.5)) == "-2"
    assert recovery.base_for(bases, hours(-1)) == "-1"
    assert recovery.base_for(bases, hours(-4)) is None


def test_what_the_window_needs_is_kept() -> None:
    """Of each range that reaches into it, the last backup before it, or its first."""
    bases = [RecoveryBase(str(count), hours(count)) for count in (-70, -60, -40, -10, -5)]
    ranges = [between(-70, -30), between(-10, 0)]
    assert recovery.needed(bases, ranges, 2, NOON) == {"-60", "-10"}
    assert recovery.needed(bases, ranges, 1, NOON) == {"-10"}
    assert recovery.needed(bases, ranges, 7, NOON) == {"-70", "-10"}
    assert recovery.needed(bases, ranges, 0, NOON) == set()
    assert recovery.needed([], ranges, 7, NOON) == set()


def test_a_range_that_ends_where_the_window_begins_needs_nothing() -> None:
    bases = [RecoveryBase("old", hours(-60))]
    assert recovery.needed(bases, [between(-60, -48)], 2, NOON) == set()
    assert recovery.needed(bases, [between(-60, -47.9)], 2, NOON) == {"old"}


def test_a_backup_that_nothing_continues_yet_is_a_range_of_one_moment() -> None:
    assert recovery.needed([RecoveryBase("new", NOON)], [between(0, 0)], 2, NOON) == {"new"}


def test_ranges_are_read_as_cells_write_them() -> None:
    told = {"begins_at": "2026-11-26T11:00:00.000Z", "ends_at": "2026-11-26T12:00:00.000Z"}
    assert recovery.moment_ranges([told]) == [between(-1, 0)]
