"""Every threshold of the table on both sides, and the page that tells of kinds and thresholds."""

from pathlib import Path
from typing import Final

import pytest

from control.policy import alert_thresholds
from control.policy.alert_kinds import KINDS
from control.policy.alert_thresholds import CLEAR, Threshold, level, worst_of

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "alerts.md").read_text()
THRESHOLDS: Final = [
    each for each in vars(alert_thresholds).values() if isinstance(each, Threshold)
]
EVERY: Final = [
    pytest.param(threshold, limit, severity, id=f"{threshold.kind} {severity} {limit:g}")
    for threshold in THRESHOLDS
    for limit, severity in threshold.levels
]


def milder(threshold: Threshold, severity: str) -> str | None:
    names = [name for _, name in threshold.levels]
    place = names.index(severity)
    return names[place - 1] if place else None


@pytest.mark.parametrize(("threshold", "limit", "severity"), EVERY)
def test_a_threshold_holds_from_its_figure_on_and_not_before(
    threshold: Threshold, limit: float, severity: str
) -> None:
    before = limit + 0.01 if threshold.falls else limit - 0.01
    assert level(threshold, limit) == severity
    assert level(threshold, before) == milder(threshold, severity)


@pytest.mark.parametrize("threshold", THRESHOLDS, ids=lambda each: each.measure)
def test_one_is_over_well_before_it_would_be_raised_again(threshold: Threshold) -> None:
    first, _ = threshold.levels[0]
    step = 0.01 if threshold.falls else -0.01
    assert level(threshold, threshold.clear) is None
    assert level(threshold, threshold.clear + step) == CLEAR
    assert threshold.clear > first if threshold.falls else threshold.clear < first
    # The mildest comes first, and is reached first.
    limits = [limit for limit, _ in threshold.levels]
    assert limits == sorted(limits, reverse=threshold.falls)


@pytest.mark.parametrize("threshold", THRESHOLDS, ids=lambda each: each.measure)
def test_a_range_is_raised_by_its_better_end_and_over_by_its_worse_one(
    threshold: Threshold,
) -> None:
    limit, severity = threshold.levels[-1]
    beyond = threshold.clear + (1 if threshold.falls else -1)
    assert level(threshold, beyond, limit) is None
    assert level(threshold, limit, limit) == severity
    assert level(threshold, beyond, beyond) == CLEAR


def test_of_several_measures_the_worst_counts_and_all_must_be_clear() -> None:
    assert worst_of([CLEAR, None]) is None
    assert worst_of([CLEAR, CLEAR]) == CLEAR
    assert worst_of([None, "warning", CLEAR]) == "warning"
    assert worst_of(["critical", "warning"]) == "critical"


def test_the_page_has_every_kind_as_it_is() -> None:
    rows = [
        f"| `{name}` | {kind.about} | {kind.raised_when} | {kind.over_when} |"
        for name, kind in KINDS.items()
    ]
    assert table("Kinds") == rows


def test_the_page_has_every_threshold_as_it_is() -> None:
    assert table("Thresholds") == [row(each) for each in THRESHOLDS]


def table(heading: str) -> list[str]:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| `")][1:]


def row(threshold: Threshold) -> str:
    limits = {severity: limit for limit, severity in threshold.levels}
    than = "or less" if threshold.falls else "or more"
    cells = [
        f"{limits[severity]:g} {threshold.unit} {than}" if severity in limits else "\N{EN DASH}"
        for severity in ("info", "warning", "critical")
    ]
    over = f"{'more' if threshold.falls else 'less'} than {threshold.clear:g} {threshold.unit}"
    return f"| `{threshold.kind}` | {threshold.measure} | {' | '.join(cells)} | {over} |"
