"""Writes docs/billing/year.csv: a year of an organization, as a spreadsheet works it out.

It knows nothing of the code that rates and invoices. What happened is written out here by hand, and
`contract_tests/workflows/billing/test_year.py` lets it happen and compares the twelve invoices.

usage: python -m tools.billing_year
"""

import csv
import io
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from tools.usage import is_asked

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "billing" / "year.csv"
YEAR: Final = 2031
COLUMNS: Final = (
    *("month", "row", "metric", "team", "instance", "since", "until", "quantity", "unit"),
    *("price_cents", "per", "value_cents"),
)
VALUE: Final = "L"
"""The column of the formulas."""
TAX_PERCENT: Final = 19


def at(text: str) -> datetime:
    """In the year, as in 03-30 01:30:00; what is after it is in the next one."""
    if text == "end":
        return datetime(YEAR + 1, 1, 1, tzinfo=UTC)
    return datetime.fromisoformat(f"{YEAR}-{text}").replace(tzinfo=UTC)


CHANGE: Final = at("05-16 00:00:00")
"""From then on there are other prices."""


class ListPrice(NamedTuple):
    """In cents; for a month, or for a GB that is sent."""

    before: int
    after: int

    def within(self, since: datetime) -> int:
        return self.before if since < CHANGE else self.after


PRICES: Final = {
    "team": ListPrice(10_000, 10_000),
    "solo": ListPrice(500, 500),
    "seats": ListPrice(250, 250),
    "s0": ListPrice(1_000, 1_000),
    "s1": ListPrice(1_500, 1_500),
    "m2": ListPrice(11_000, 12_000),
    "storage": ListPrice(12, 15),
    "backups": ListPrice(3, 3),
    "egress": ListPrice(1, 1),
    "domains": ListPrice(100, 100),
}


class YearUse(NamedTuple):
    """Of something from one moment to another; `number` is of seats, GB or domains."""

    metric: str
    price: str
    team: str
    instance: str
    since: datetime
    until: datetime
    number: int = 1


START: Final = at("01-01 00:00:00")
READY: Final = at("01-10 08:00:00")
PAUSED: Final = at("02-05 00:00:00")
RESUMED: Final = at("02-20 12:00:00")
# In the hour that summer time leaves out in Berlin; here days have 24 hours.
RESIZED: Final = at("03-30 01:30:00")
MOVED: Final = at("04-11 06:00:00")
TRIED: Final = at("06-04 09:15:20")
DELETED: Final = at("06-15 10:00:07")
# In the hour that is there twice.
PAUSED_AGAIN: Final = at("10-26 00:30:00")
RESUMED_AGAIN: Final = at("10-27 01:00:00")
DOMAIN: Final = at("11-03 00:00:00"), at("11-13 00:00:00")
PLAN_CHANGED: Final = at("12-16 00:00:00")
BACKED_UP: Final = at("01-11 00:00:00")
END: Final = at("end")
A, B = "Storefront", "Analytics"
USES: Final = (
    YearUse("plan", "team", "", "", START, PLAN_CHANGED),
    YearUse("plan", "solo", "", "", PLAN_CHANGED, END),
    YearUse("seats", "seats", "", "", START, END, 4),
    YearUse("compute", "s1", A, "shop", READY, PAUSED),
    YearUse("compute", "s1", A, "shop", RESUMED, RESIZED),
    YearUse("compute", "m2", A, "shop", RESIZED, MOVED),
    YearUse("compute", "m2", B, "shop", MOVED, PAUSED_AGAIN),
    YearUse("compute", "m2", B, "shop", RESUMED_AGAIN, END),
    YearUse("compute", "s0", B, "trial", TRIED, DELETED),
    YearUse("storage", "storage", A, "shop", READY, RESIZED, 2),
    YearUse("storage", "storage", A, "shop", RESIZED, MOVED, 10),
    YearUse("storage", "storage", B, "shop", MOVED, END, 10),
    YearUse("storage", "storage", B, "trial", TRIED, DELETED, 3),
    YearUse("backups", "backups", A, "shop", BACKED_UP, MOVED, 20),
    YearUse("backups", "backups", B, "shop", MOVED, END, 20),
    YearUse("domains", "domains", B, "shop", *DOMAIN),
)
"""`number` of storage is what there is beyond the size."""
SENT_MEGABYTES: Final = {month: 100_000 + 10_500 * month for month in range(1, 13)}
"""In an hour of the nineteenth of each month."""
SENT_AT: Final = {month: at(f"{month:02}-19 10:00:00") for month in SENT_MEGABYTES}
CORRECTED: Final = {"of": 8, "in": 9, "megabytes": -80_000}
"""What was sent in August turns out to be less, when its invoice is made already."""
CORRECTED_AT: Final = at("09-05 14:20:00")
CREDITED_AT: Final = at("07-03 12:00:00")
CREDIT_CENTS: Final = {7: 5_000}
"""By the month whose invoice uses it."""
ORDER: Final = ("plan", "seats", "compute", "storage", "backups", "egress", "domains")


class UsePart(NamedTuple):
    line: tuple[str, str]
    since: str
    until: str
    quantity: str
    unit: str
    price: int
    per: int


class Sheet:
    """Rows, of which each knows its number: the first is the header."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = [list(COLUMNS)]

    def add(self, *cells: object) -> str:
        """The place of its value; `#` in that stands for the row."""
        number = len(self.rows) + 1
        self.rows.append([str(cell).replace("#", str(number)) for cell in cells])
        return f"{VALUE}{number}"

    def month(self, begin: datetime) -> None:
        name = f"{begin:%Y-%m}"
        amounts = [
            self._amount(name, metric, lines)
            for metric in ORDER
            if (lines := self._lines(name, metric, list(_parts(metric, begin))))
        ]
        if begin.month == CORRECTED["in"]:
            part = _sent(CORRECTED["of"], CORRECTED["megabytes"])
            lines = self._lines(name, "egress", [part])
            amounts.append(self._amount(name, f"egress of {YEAR}-{CORRECTED['of']:02}", lines))
        blank = [""] * 8
        subtotal = self.add(name, "subtotal", "", *blank, f"=SUM({','.join(amounts)})")
        credited = self.add(name, "credits", "", *blank, -CREDIT_CENTS.get(begin.month, 0))
        formula = f"=ROUND(SUM({subtotal},{credited})*{TAX_PERCENT}/100,0)"
        tax = self.add(name, "tax", "", *blank, formula)
        self.add(name, "total", "", *blank, f"=SUM({subtotal},{credited},{tax})")

    def _lines(self, month: str, metric: str, parts: list[UsePart]) -> list[str]:
        """One for each team and instance: what its parts cost, rounded down to a micro-cent."""
        places = []
        for line in dict.fromkeys(part.line for part in parts):
            cells = [
                self.add(month, "part", metric, *line, *part[1:], "=H#*J#/K#")
                for part in parts
                if part.line == line
            ]
            summed = f"=ROUNDDOWN(SUM({','.join(cells)}),6)"
            places.append(self.add(month, "line", metric, *line, *[""] * 6, summed))
        return places

    def _amount(self, month: str, metric: str, lines: list[str]) -> str:
        rounded = f"=ROUND(SUM({','.join(lines)}),0)"
        return self.add(month, "amount", metric, *[""] * 8, rounded)


def _parts(metric: str, begin: datetime) -> Iterator[UsePart]:
    end = (begin + timedelta(days=31)).replace(day=1)
    if metric == "egress":
        yield _sent(begin.month, SENT_MEGABYTES[begin.month])
    for use in USES:
        if use.metric == metric:
            for since, until in ((START, CHANGE), (CHANGE, END)):
                first, last = max(use.since, begin, since), min(use.until, end, until)
                if first < last:
                    yield _part(use, first, last, end - begin)


def _part(use: YearUse, since: datetime, until: datetime, month: timedelta) -> UsePart:
    by_hour = use.metric in {"seats", "backups", "domains"}
    unit = timedelta(hours=1) if by_hour else timedelta(seconds=1)
    name = "hour" if by_hour else "second"
    counted = {"seats": "seat ", "storage": "GB ", "backups": "GB "}.get(use.metric, "")
    return UsePart(
        (use.team, use.instance),
        since=_shown(since),
        until=_shown(until),
        quantity=str((until - since) // unit * use.number),
        unit=f"{counted}{name}",
        price=PRICES[use.price].within(since),
        per=month // unit,
    )


def _sent(month: int, megabytes: int) -> UsePart:
    hour = SENT_AT[month]
    return UsePart(
        (A if hour < MOVED else B, "shop"),
        since=_shown(hour),
        until=_shown(hour + timedelta(hours=1)),
        quantity=f"{megabytes / 1000:g}",
        unit="GB",
        price=PRICES["egress"].within(hour),
        per=1,
    )


def _shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def text() -> str:
    sheet = Sheet()
    for number in range(1, 13):
        sheet.month(datetime(YEAR, number, 1, tzinfo=UTC))
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(sheet.rows)
    return written.getvalue()


def main(arguments: list[str]) -> int:
    if not is_asked(arguments, __doc__):
        PAGE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
