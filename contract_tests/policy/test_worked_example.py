"""The report that docs/billing.md explains: every number of it, computed anew."""

import re
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

from control.policy.months import month_of
from control.policy.price_lists import PACKAGED, read
from control.policy.rating import LineKey, MonthTally, UsageSums
from control.policy.sizes import GB
from storage.billing.meters import MeterSums
from storage.billing.plan_spans import PlanSums
from storage.instances.spans import SpanSums

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "billing.md").read_text("utf-8")
DAY_S: Final = 86_400
NOVEMBER: Final = month_of(datetime(2026, 11, 1, tzinfo=UTC))
CHANGE: Final = re.findall(r"```toml\n(\[\[prices\]\]\n.*?)```", PAGE, re.DOTALL)[0]
BOOK: Final = read(PACKAGED.read_text("utf-8") + CHANGE)


class Row(NamedTuple):
    team: str
    metric: str
    quantity: int
    exactly: Fraction
    micro_cents: int


def rows() -> list[Row]:
    """Of the table, as a spreadsheet has them."""
    line = r"^\| (\S+) \| ([a-z]+) \| (\d+) \| `?([^|`]+)`? \| (\d+) \|$"
    found = re.findall(line, PAGE, re.MULTILINE)
    return [
        Row(team, metric, int(quantity), value(formula), int(micro_cents))
        for team, metric, quantity, formula, micro_cents in found
    ]


def value(formula: str) -> Fraction:
    """Of products, sums and quotients of numbers, and nothing else."""
    assert re.fullmatch(r"[0-9.*+/() ]+", formula), formula
    exact = re.sub(r"[0-9.]+", lambda number: f"Fraction('{number[0]}')", formula)
    found: Fraction = eval(exact, {"Fraction": Fraction})
    return found


def told() -> MonthTally:
    """By the code that all reports are made by, of what the page says that happened."""
    tally, first, second = MonthTally(NOVEMBER), *BOOK.lists

    def span(team: str, size: str, gb: int, days: int, *, runs: bool) -> SpanSums:
        return SpanSums("inst", team, "local", size, gb * GB, runs, days * DAY_S, 0)

    def meter(team: str | None, name: str, quantity: int) -> MeterSums:
        region = None if team is None else "local"
        return MeterSums(team and "inst", team, region, "team", name, quantity)

    tally.add(
        first,
        UsageSums(
            [
                span("Storefront", "s1", 12, 10, runs=True),
                span("Storefront", "s1", 12, 5, runs=False),
            ],
            [
                meter("Storefront", "backups", 20 * GB * 15 * 24),
                meter("Storefront", "domains", 5 * 24),
                meter(None, "seats", 4 * 15 * 24),
            ],
            [PlanSums("team", 15 * DAY_S, 0)],
        ),
    )
    tally.add(
        second,
        UsageSums(
            [
                span("Storefront", "s1", 12, 5, runs=False),
                span("Analytics", "m2", 60, 10, runs=True),
            ],
            [
                meter("Storefront", "backups", 20 * GB * 5 * 24),
                meter("Analytics", "backups", 20 * GB * 10 * 24),
                meter("Analytics", "egress", 1505 * GB // 10),
                meter(None, "seats", 4 * 15 * 24),
            ],
            [PlanSums("team", 15 * DAY_S, 0)],
        ),
    )
    return tally


def test_every_number_of_the_report_is_what_comes_out() -> None:
    expected = {}
    for row in rows():
        team = None if row.team == "none" else row.team
        expected[LineKey(team and "inst", team, row.metric)] = (row.quantity, row.micro_cents)
    assert len(expected) == 10
    assert told().lines == expected


def test_every_formula_of_the_report_gives_its_number_rounded_down_once() -> None:
    for row in rows():
        assert int(row.exactly * 1_000_000) == row.micro_cents, row


def test_the_sum_is_that_of_the_lines_and_its_amount_is_told() -> None:
    (written,) = re.findall(r"^\| \*\*Sum\*\* \|.*\| \*\*(\d+)\*\* \|$", PAGE, re.MULTILINE)
    whole = sum(row.micro_cents for row in rows())
    assert whole == int(written) == told().micro_cents
    assert f"So the month costs {whole // 10**8}.{whole // 10**6 % 100:02d} USD" in PAGE
