"""Lines of a month against a slow, plain model: they are its integral, to the micro-cent.

Whatever becomes of instances, teams and prices, and however late and often meters are read.
"""

import itertools
from collections import defaultdict
from datetime import datetime, timedelta
from fractions import Fraction
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from contract_tests.databases import DIALECTS, Databases
from contract_tests.storage import tenants
from contract_tests.storage.instances.billed_pieces import (
    PREVIEWED,
    Late,
    Now,
    Piece,
    kind_of,
    parts,
    second,
    used,
)
from contract_tests.storage.instances.changing_prices import BOOK
from contract_tests.storage.instances.clock import BEGIN, clock_of
from contract_tests.storage.instances.test_lifecycle_machine import ACTS
from control.billing import charges, correcting
from control.policy.months import HOUR, Month, hour_of, month_of
from control.policy.prices import PriceBook
from control.policy.rating import BACKUPS, DOMAINS, EGRESS, SEATS, LineKey, MonthTally
from control.policy.sizes import GB, SIZES
from storage.access import teams
from storage.billing import meters
from storage.billing.meters import MeterReading
from storage.billing.whose import Whose
from storage.database import Database
from storage.errors import StateConflict
from storage.instances import changes, instances, of_projects, of_teams
from storage.instances.instances import Instance
from storage.instances.spans import BilledSpan

PLACES = st.integers(0, 9)
"""Of an instance among those there are."""
TIMES = st.one_of(st.integers(0, 5_000), st.integers(0, 5 * 86_400_000))
"""In milliseconds."""


class Accounts(RuleBasedStateMachine):
    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.database = Database(self.url)
        self.listening = clock_of(self.database)
        self.clock = self.listening.__enter__()
        self.pieces: list[Piece] = []
        self.now: dict[str, Now] = {}
        self.metered: defaultdict[tuple[str, str, datetime], list[tuple[str | None, int]]]
        self.metered = defaultdict(list)
        self.corrected: defaultdict[tuple[str, str, datetime], list[tuple[str | None, int]]]
        self.corrected = defaultdict(list)
        self.late: list[Late] = []

    @initialize()
    def begin(self) -> None:
        with self.database.write() as db:
            self.tenant = tenants.make(db)
            org_id = self.tenant.org_id
            made = [teams.create(db, org_id, {"name": n, "slug": n}).id for n in ("blue", "red")]
        self.teams = [teams.everyone_of(org_id), *made]
        for size in ("s0", "m2"):
            self.order(size, 0)
        for of in range(2):
            self.gets_ready(of, 0)

    def written(self, db: Session) -> None:
        """Whatever an instance has become, it has been what it was until this moment."""
        db.flush()
        db.expire_all()
        for one in db.scalars(select(Instance).where(Instance.org_id == self.tenant.org_id)):
            was = self.now.get(one.id)
            if was is not None and was.kind is not None:
                self.pieces.append(Piece(one.id, was.kind, was.since, self.clock.moment))
            self.now[one.id] = Now(kind_of(one), self.clock.moment)

    def one(self, db: Session, of: int) -> Instance:
        chosen = sorted(self.now)[of % len(self.now)]
        return instances.fetch(db, self.tenant.org_id, chosen, lock=True)

    def passes(self, milliseconds: int) -> None:
        """Before each act, so that what it leaves behind has cost something."""
        self.clock.pass_time(milliseconds)

    @rule(size=st.sampled_from(sorted(SIZES)), after=TIMES)
    def order(self, size: str, after: int) -> None:
        self.passes(after)
        with self.database.write() as db:
            made = tenants.instance(db, self.tenant, size=size)
            made.storage_bytes = SIZES[size].storage_bytes_included + 3 * GB
            self.written(db)

    @rule(of=PLACES, verbs=st.lists(st.sampled_from(sorted(ACTS)), min_size=1), after=TIMES)
    def transition(self, of: int, verbs: list[str], after: int) -> None:
        """All in one transaction, where several are drawn; those that are not allowed are not."""
        self.passes(after)
        with self.database.write() as db:
            instance = self.one(db, of)
            for verb in verbs:
                try:
                    ACTS[verb](instance)
                except StateConflict:
                    continue
            self.written(db)

    @rule(of=PLACES, after=TIMES)
    def gets_ready(self, of: int, after: int) -> None:
        self.transition(of, ["provisioning", "became_running"], after)

    @rule(of=PLACES, by=st.sampled_from(["became_paused", "became_idle"]), after=TIMES)
    def stays_paused(self, of: int, by: str, after: int) -> None:
        self.transition(of, ["pause", by], after)

    @rule(of=PLACES, after=TIMES)
    def is_deleted_and_comes_back(self, of: int, after: int) -> None:
        self.transition(of, ["delete", "became_deleted"], after)
        self.transition(of, ["undelete"], after)

    @rule(
        of=PLACES,
        size=st.none() | st.sampled_from(sorted(SIZES)),
        gigabytes=st.none() | st.integers(1, 60),
        applied=st.booleans(),
        after=TIMES,
    )
    def resize(
        self, of: int, size: str | None, gigabytes: int | None, applied: bool, after: int
    ) -> None:
        self.passes(after)
        with self.database.write() as db:
            instance = self.one(db, of)
            wanted = {"size": size, "storage": gigabytes and gigabytes * GB}
            given = {name: value for name, value in wanted.items() if value is not None}
            try:
                changes.order(db, instance, given, requested_by=None, now=self.clock.moment)
            except StateConflict:
                return
            self.written(db)
        self.passes(61_001)
        with self.database.write() as db:
            instance = self.one(db, of)
            for change in changes.pending(db, instance.org_id, instance.id):
                if applied:
                    change.apply(instance, self.clock.moment)
            if applied and instance.status == "resizing":
                instance.became_running(self.clock.moment)
            self.written(db)

    @rule(to=st.integers(0, 2), after=TIMES)
    def project_moves(self, to: int, after: int) -> None:
        self.passes(after)
        with self.database.write() as db:
            of_teams.follow_project(db, self.tenant.org_id, self.tenant.project_id, self.teams[to])
            self.written(db)

    @rule(after=TIMES)
    def erased_ones_leave(self, after: int) -> None:
        self.passes(after)
        with self.database.write() as db:
            of_projects.leave_project(db, self.tenant.org_id, self.tenant.project_id)
            of_teams.leave_team(db, self.tenant.org_id, self.teams[0])
            self.written(db)

    @rule(of=PLACES, gigabytes=st.integers(1, 60), after=TIMES)
    def by_hand(self, of: int, gigabytes: int, after: int) -> None:
        self.passes(after)
        with self.database.write() as db:
            chosen = sorted(self.now)[of % len(self.now)]
            statement = (
                f"UPDATE instances SET storage_bytes = :bytes, updated_at = {self.clock.shown}"
                " WHERE id = :id"
            )
            db.execute(text(statement), {"bytes": gigabytes * GB, "id": chosen})
            self.written(db)

    @rule(
        of=PLACES,
        meter=st.sampled_from([BACKUPS, EGRESS, DOMAINS, SEATS]),
        quantity=st.integers(0, 10**13),
        late=st.integers(0, 40),
        times=st.integers(1, 3),
        after=TIMES,
    )
    def is_metered(
        self, of: int, meter: str, quantity: int, late: int, times: int, after: int
    ) -> None:
        """Late, and again and again: once it counts."""
        self.passes(after)
        hour = hour_of(self.clock.moment) - late * HOUR
        with self.database.write() as db:
            reading = self.reading(db, of, meter, hour, quantity)
        known = self.metered[reading[:3]]
        if meter == EGRESS and quantity > (total := sum(each for _, each in known)):
            known.append((reading.team_id, quantity - total))
        elif meter != EGRESS and not known:
            known.append((reading.team_id, quantity))
        for _ in range(times):
            with self.database.write() as db:
                (meters.raise_to if meter == EGRESS else meters.note)(db, [reading])

    @rule(
        of=PLACES,
        meter=st.sampled_from([BACKUPS, EGRESS, SEATS]),
        quantity=st.integers(0, 10**13),
        late=st.one_of(st.integers(0, 40), st.integers(0, 1_500)),
        after=TIMES,
    )
    def is_corrected(self, of: int, meter: str, quantity: int, late: int, after: int) -> None:
        """However late; of a month that ended a day ago, it counts in this one."""
        self.passes(after)
        hour = hour_of(self.clock.moment) - late * HOUR
        with self.database.write() as db:
            reading = self.reading(db, of, meter, hour, quantity)
        metered, corrected = self.metered[reading[:3]], self.corrected[reading[:3]]
        later = [one.quantity for one in self.late if one[:3] == reading[:3]]
        known = sum(each for _, each in (*metered, *corrected)) + sum(later)
        team_id = (metered[-1:] or corrected[:1] or [(reading.team_id, 0)])[0][0]
        if self.clock.moment >= month_of(hour).end + timedelta(days=1):
            at = hour_of(self.clock.moment)
            self.late.append(Late(*reading[:3], team_id, quantity - known, at))
        else:
            corrected.append((team_id, quantity - known))
        for _ in range(2):
            with self.database.write() as db:
                correcting.correct(db, BOOK, reading, "counted twice", self.clock.moment)

    def reading(
        self, db: Session, of: int, meter: str, hour: datetime, quantity: int
    ) -> MeterReading:
        instance, org_id = self.one(db, of), self.tenant.org_id
        if meter == SEATS:
            return MeterReading(org_id, meter, hour, org_id, None, None, "solo", quantity)
        place = instance.team_id, instance.region
        return MeterReading(instance.id, meter, hour, org_id, *place, "solo", quantity)

    def expected(self, month: Month, book: PriceBook = BOOK) -> dict[LineKey, int]:
        """Each line of the month, in micro-cents."""
        now, sums = self.clock.moment, defaultdict[LineKey, Fraction](Fraction)
        lasting = [
            Piece(one, kind, since, now)
            for one, (kind, since) in self.now.items()
            if kind is not None
        ]
        for instance_id, kind, since, until in (*self.pieces, *lasting):
            within = max(second(since), month.begin), min(second(until), month.end)
            for begin, end, number in parts(*within, book):
                rates = book.lists[number].in_region("local")
                share = Fraction(int((end - begin).total_seconds()), month.seconds)
                beyond = max(0, kind.storage_bytes - SIZES[kind.size].storage_bytes_included)
                if kind.runs:
                    key = LineKey(instance_id, kind.team_id, "compute")
                    sums[key] += share * rates.sizes[kind.size]
                if beyond:
                    key = LineKey(instance_id, kind.team_id, "storage")
                    sums[key] += share * -(-beyond // GB) * rates.storage_gb_month
        for (subject, meter, hour), entries in (*self.metered.items(), *self.corrected.items()):
            for team_id, quantity in entries:
                if month.begin <= hour < month.end:
                    key = LineKey(None if meter == SEATS else subject, team_id, meter)
                    sums[key] += quantity * self.price(meter, hour, month, book)
        for one in self.late:
            if month.begin <= one.counts_at < month.end:
                key = LineKey(
                    None if one.meter == SEATS else one.subject_id, one.team_id, one.meter
                )
                price = self.price(one.meter, one.hour, month_of(one.hour))
                sums[key] += one.quantity * price // 1
        return {key: int(cost // 1) for key, cost in sums.items() if cost // 1}

    def price(self, meter: str, hour: datetime, month: Month, book: PriceBook = BOOK) -> Fraction:
        ((_, _, number),) = parts(hour, hour + HOUR, book)
        prices, of_hour = book.lists[number], Fraction(3600, month.seconds)
        rates = prices.in_region(None if meter == SEATS else "local")
        return {
            BACKUPS: Fraction(rates.backup_gb_month, GB) * of_hour,
            EGRESS: Fraction(rates.egress_gb, GB),
            DOMAINS: rates.domain_month * of_hour,
            SEATS: prices.seat_month * of_hour,
        }[meter]

    def teardown(self) -> None:
        try:
            if self.now:
                self.passes(86_400_000)
                self.compare()
        finally:
            self.listening.__exit__(None, None, None)
            self.database.dispose()

    def compare(self) -> None:
        month = month_of(BEGIN)
        whose = Whose(self.tenant.org_id)
        while month.begin <= self.clock.moment:
            until = min(month.end, self.clock.moment)
            with self.database.read() as db:
                found = charges.tally(db, BOOK, whose, month, until)
                by_teams = charges.of_teams(db, BOOK, self.teams, month, until)
                in_parts = self.in_parts(db, month, until)
                previewed = charges.tally(db, PREVIEWED, whose, month, until)
            told = {key: one.micro_cents for key, one in found.lines.items() if one.quantity}
            # The fee of the plan begins with the organization, and that of `free` is nothing.
            assert told.pop(LineKey(None, None, "plan"), 0) == 0
            assert {k: v for k, v in told.items() if v} == self.expected(month)
            assert used(in_parts) == used(found)
            assert previewed.micro_cents == sum(self.expected(month, PREVIEWED).values())
            assert {team_id: one.month_to_date for team_id, one in by_teams.items()} == {
                each: sum(cost for key, cost in told.items() if key.team_id == each)
                for each in self.teams
            }
            month = month_of(month.end)
        self.check_rows()

    def in_parts(self, db: Session, month: Month, until: datetime) -> MonthTally:
        """The month cut into parts, whose costs add up to those of the lines."""
        tally, sums = MonthTally(month), defaultdict[LineKey, int](int)
        begin = month.begin
        while begin < until:
            end = min(begin + timedelta(days=13, hours=5), until)
            for *within, prices in BOOK.cut(begin, end):
                added = tally.add(prices, charges.sums(db, Whose(self.tenant.org_id), *within))
                for key, charge in added.items():
                    sums[key] += charge.micro_cents
            begin = end
        assert sums == {key: one.micro_cents for key, one in tally.lines.items()}
        return tally

    def check_rows(self) -> None:
        """Without a gap where there is none, and only of what is paid for."""
        with self.database.read() as db:
            rows = select(BilledSpan).where(BilledSpan.org_id == self.tenant.org_id)
            found = list(db.scalars(rows.order_by(BilledSpan.instance_id, BilledSpan.id)))
        for one, following in itertools.pairwise(found):
            if one.instance_id == following.instance_id:
                assert one.since <= (one.until or BEGIN) <= following.since
        lasting = {one.instance_id for one in found if one.until is None}
        assert lasting == {one for one, (kind, _) in self.now.items() if kind is not None}


def run(databases: Databases, dialect: str, examples: int, steps: int) -> None:
    machine = type("Accounts", (Accounts,), {"url": databases.migrated(dialect)})
    chosen = settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_lines_are_what_the_model_says(databases: Databases, dialect: str) -> None:
    run(databases, dialect, examples=6, steps=25)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_lines_are_what_the_model_says_at_length(databases: Databases, dialect: str) -> None:
    run(databases, dialect, examples=300, steps=50)
