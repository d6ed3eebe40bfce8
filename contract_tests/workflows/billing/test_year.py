"""A year of an organization closes twelve invoices that docs/billing/year.csv works out."""

import csv
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import pytest
from sqlalchemy import delete
from sqlalchemy.orm import Session

from contract_tests.databases import DIALECTS, Databases
from contract_tests.invoicing import issuer_from
from contract_tests.storage import tenants
from contract_tests.storage.instances.clock import Clock, clock_of
from contract_tests.storage.instances.test_lifecycle_machine import ACTS
from control.billing import correcting, granting, invoicing
from control.policy.months import HOUR, Month, month_named, months
from control.policy.price_lists import PACKAGED, read
from control.policy.prices import MICRO_CENTS
from control.policy.sizes import GB
from storage.access import organizations, teams
from storage.billing.invoices import Invoice
from storage.billing.meters import MeterReading
from storage.billing.plan_spans import PlanSpan
from storage.database import Database
from storage.instances import changes, instances, of_teams
from storage.instances.instances import Instance
from tools import billing_year as year

PRICES: Final = """
[[prices]]
from = 2031-05-16T00:00:00Z
storage_gb_month = 15
[prices.sizes]
m2 = 12_000
"""
BOOK: Final = read(
    PACKAGED.read_text("utf-8").replace("seat_month = 0", "seat_month = 250") + PRICES
)


class Story:
    """What the spreadsheet says happened, done to records as services do it."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database, self.clock = database, clock
        self.ids: dict[str, str] = {}
        self.set_clock(year.START)
        with database.write() as db:
            self.tenant = tenants.make(db)
            self.org_id = self.tenant.org_id
            organizations.fetch(db, self.org_id).plan = "team"
            names = [{"name": name, "slug": name.lower()} for name in (year.A, year.B)]
            self.teams = {each["name"]: teams.create(db, self.org_id, each).id for each in names}
            self.moves(db, year.A)

    def acts(self) -> list[tuple[datetime, Callable[[Session], None]]]:
        return sorted(
            [
                (year.READY, lambda db: self.made(db, "shop", "s1", 12)),
                (year.PAUSED, lambda db: self.does(db, "pause", "became_paused")),
                (year.RESUMED, lambda db: self.does(db, "resume", "became_running")),
                (year.RESIZED, self.resized),
                (year.MOVED, lambda db: self.moves(db, year.B)),
                (year.TRIED, lambda db: self.made(db, "trial", "s0", 8)),
                (year.DELETED, lambda db: self.does(db, "delete", of="trial")),
                (year.CREDITED_AT, self.credited),
                (year.CORRECTED_AT, self.corrected),
                (year.PAUSED_AGAIN, lambda db: self.does(db, "pause", "became_paused")),
                (year.RESUMED_AGAIN, lambda db: self.does(db, "resume", "became_running")),
                (year.PLAN_CHANGED, self.plan_changed),
            ],
            key=lambda act: act[0],
        )

    def happens(self, month: Month) -> Invoice:
        """All of a month, its meters and its invoice, which is made two days later."""
        for moment, act in self.acts():
            if month.begin <= moment < month.end:
                self.at(moment, act)
        self.at(month.end + HOUR, lambda db: self.metered(db, month))
        return self.invoiced(month)

    def at(self, moment: datetime, act: Callable[[Session], None]) -> None:
        self.set_clock(moment)
        with self.database.write() as db:
            act(db)

    def set_clock(self, moment: datetime) -> None:
        """That of triggers, and that which is asked for the time. It is never set back."""
        assert moment >= self.clock.moment or not self.ids
        self.clock.moment = moment
        self.database.clock_offset += moment - self.database_now()

    def database_now(self) -> datetime:
        with self.database.read() as db:
            return self.database.now(db)

    def one(self, db: Session, of: str) -> Instance:
        return instances.fetch(db, self.org_id, self.ids[of], lock=True)

    def made(self, db: Session, name: str, size: str, gigabytes: int) -> None:
        found = tenants.instance(db, self.tenant, size=size)
        found.storage_bytes = gigabytes * GB
        self.ids[name] = found.id
        self.does(db, "provisioning", "became_running", of=name)

    def does(self, db: Session, *verbs: str, of: str = "shop") -> None:
        for verb in verbs:
            ACTS[verb](self.one(db, of))

    def resized(self, db: Session) -> None:
        found, moment = self.one(db, "shop"), self.clock.moment
        wanted = {"size": "m2", "storage": 60 * GB}
        changes.order(db, found, wanted, requested_by=None, now=moment)
        for change in changes.pending(db, self.org_id, found.id):
            change.apply(found, moment)
        found.became_running(moment)

    def moves(self, db: Session, team: str) -> None:
        to = self.org_id, self.tenant.project_id, self.teams[team]
        of_teams.follow_project(db, *to)
        self.team = team

    def credited(self, db: Session) -> None:
        cents = year.CREDIT_CENTS[7]
        granting.grant(
            db, self.org_id, "granted", cents, "USD", reason="so", source="year", months=2
        )

    def corrected(self, db: Session) -> None:
        of = year.CORRECTED["of"]
        sent = (year.SENT_MEGABYTES[of] + year.CORRECTED["megabytes"]) * GB // 1000
        reading = self.reading(db, "egress", "shop", year.B, year.SENT_AT[of], sent)
        correcting.correct(db, BOOK, reading, "a load test of ours", self.clock.moment)

    def plan_changed(self, db: Session) -> None:
        """Written as triggers write it: they have the machine's clock, which shows another year."""
        moment = self.clock.moment
        organizations.fetch(db, self.org_id).plan = "solo"
        db.flush()
        db.execute(delete(PlanSpan).where(PlanSpan.org_id == self.org_id))
        for plan, since, until in (("team", year.START, moment), ("solo", moment, None)):
            db.add(PlanSpan(org_id=self.org_id, plan=plan, since=since, until=until))

    def metered(self, db: Session, month: Month) -> None:
        correcting.note(db, BOOK, list(self.read(month)), self.clock.moment)

    def reading(
        self, db: Session, meter: str, instance: str, team: str, hour: datetime, quantity: int
    ) -> MeterReading:
        whose = self.teams.get(team), "local" if instance else None
        plan = organizations.fetch(db, self.org_id).plan
        subject = self.ids[instance] if instance else self.org_id
        return MeterReading(subject, meter, hour, self.org_id, *whose, plan, quantity)

    def read(self, month: Month) -> Iterator[MeterReading]:
        """By the hour, as the spreadsheet has it."""
        with self.database.read() as db:
            for use in year.USES:
                if use.metric in {"seats", "backups", "domains"}:
                    of = use.number * (GB if use.metric == "backups" else 1)
                    hour = max(use.since, month.begin)
                    while hour < min(use.until, month.end):
                        yield self.reading(db, use.metric, use.instance, use.team, hour, of)
                        hour += HOUR
            number = month.begin.month
            hour = year.SENT_AT[number]
            sent, team = year.SENT_MEGABYTES[number] * GB // 1000, year.A
            if hour >= year.MOVED:
                team = year.B
            yield self.reading(db, "egress", "shop", team, hour, sent)

    def invoiced(self, month: Month) -> Invoice:
        self.set_clock(month.end + timedelta(days=2, minutes=10))
        issuer = issuer_from(month_named(f"{year.YEAR}-01"))
        with self.database.write() as db:
            org = organizations.fetch(db, self.org_id)
            drafted = invoicing.draft(db, BOOK, org.id, month)
            made = invoicing.finalize(db, BOOK, issuer, org, month, drafted)
            assert made is not None
            db.expunge(made)
            return made


Cells = dict[str, str]


class Sheet:
    """The file, worked out exactly: numbers, products, quotients, SUM, ROUND and ROUNDDOWN."""

    def __init__(self) -> None:
        with year.PAGE.open(encoding="utf-8", newline="") as file:
            self.rows: list[Cells] = list(csv.DictReader(file))
        self._known: dict[str, Fraction] = {}

    def value(self, place: str) -> Fraction:
        """Of a place such as L17."""
        if place not in self._known:
            column, number = place[0], int(place[1:])
            cell = list(self.rows[number - 2].values())["ABCDEFGHIJKL".index(column)]
            self._known[place] = self._worked_out(cell)
        return self._known[place]

    def _worked_out(self, cell: str) -> Fraction:
        if not cell.startswith("="):
            return Fraction(cell)
        assert re.fullmatch(r"=[A-Z0-9*/(),]+", cell), cell
        numbers = r"\b([A-L]\d+)\b|\b(\d+)\b"
        exact = re.sub(numbers, lambda of: f"N('{of[0]}')", cell[1:])
        known: dict[str, Any] = {"N": self._number, "SUM": lambda *of: sum(of, Fraction(0))}
        known |= {"ROUND": _rounded, "ROUNDDOWN": _rounded_down}
        found: Fraction = eval(exact, known)
        return found

    def _number(self, text: str) -> Fraction:
        return self.value(text) if text[0].isalpha() else Fraction(text)

    def of(self, month: str, row: str) -> Iterator[tuple[str, Fraction]]:
        for number, each in enumerate(self.rows, 2):
            if (each["month"], each["row"]) == (month, row):
                yield each["metric"], self.value(f"{year.VALUE}{number}")


def _rounded(value: Fraction, digits: Fraction) -> Fraction:
    """Half away from zero, as spreadsheets do."""
    assert digits == 0
    return Fraction(int(abs(value) + Fraction(1, 2)) * (-1 if value < 0 else 1))


def _rounded_down(value: Fraction, digits: Fraction) -> Fraction:
    """Towards zero."""
    scale = 10 ** int(digits)
    return Fraction(int(value * scale), scale)


@pytest.fixture(params=DIALECTS)
def story(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Story]:
    database = Database(databases.migrated(request.param))
    with clock_of(database) as clock:
        yield Story(database, clock)
    database.dispose()


def compare(story: Story, last: int) -> list[Invoice]:
    sheet, found = Sheet(), []
    for month in months(year.START, month_named(f"{year.YEAR}-{last:02}").end):
        invoice, name = story.happens(month), month.name
        amounts = [(metric, int(cents)) for metric, cents in sheet.of(name, "amount")]
        assert [(_named(line), line["amount_cents"]) for line in invoice.lines] == amounts
        by_metric: dict[str, Fraction] = {}
        for metric, cents in sheet.of(name, "line"):
            by_metric[metric] = by_metric.get(metric, Fraction(0)) + cents
        billed: dict[str, int] = {}
        for line in invoice.lines:
            billed[line["metric"]] = billed.get(line["metric"], 0) + line["micro_cents"]
        assert billed == {metric: cents * MICRO_CENTS for metric, cents in by_metric.items()}
        sums = {"subtotal": invoice.subtotal_cents, "credits": -invoice.credits_cents}
        sums |= {"tax": invoice.tax_cents, "total": invoice.total_cents}
        for row, amount in sums.items():
            ((_, worked_out),) = sheet.of(name, row)
            assert worked_out == amount, (name, row)
        found.append(invoice)
    return found


def _named(line: dict[str, Any]) -> str:
    corrected = re.match(r"Correction of (\S+), ", line["description"])
    return f"{line['metric']} of {corrected[1]}" if corrected else str(line["metric"])


def test_the_first_months_are_what_the_spreadsheet_says(story: Story) -> None:
    assert len(compare(story, 2)) == 2


@pytest.mark.nightly
def test_twelve_invoices_are_what_the_spreadsheet_says(story: Story) -> None:
    found = compare(story, 12)
    numbers = [f"INV2031-{n:06}" for n in range(1, 12)]
    assert [invoice.number for invoice in found] == [*numbers, "INV2032-000001"]
    assert [invoice.credits_cents > 0 for invoice in found].count(True) == 1


def test_the_file_is_what_the_tool_writes_and_every_formula_has_a_value() -> None:
    assert year.PAGE.read_text("utf-8") == year.text()
    sheet = Sheet()
    values = [sheet.value(f"{year.VALUE}{number + 2}") for number in range(len(sheet.rows))]
    assert len(values) > 250
    totals = {name: sheet.of(f"{year.YEAR}-{name:02}", "total") for name in range(1, 13)}
    assert all(next(total)[1] > 0 for total in totals.values())
    assert Decimal(sheet.rows[0]["price_cents"]) == 10_000
