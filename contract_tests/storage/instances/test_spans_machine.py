"""Spans against a model that is slow and plain: their sum is its integral, to the micro-cent."""

import itertools
from datetime import datetime
from fractions import Fraction
from typing import ClassVar, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from contract_tests.databases import DIALECTS, Databases
from contract_tests.storage import tenants
from contract_tests.storage.instances.clock import BEGIN, clock_of
from contract_tests.storage.instances.test_lifecycle_machine import ACTS
from control.policy import budgets
from control.policy.budgets import MICRO_CENTS, Month
from control.policy.sizes import GB, SIZES
from storage.access import teams
from storage.database import Database
from storage.errors import StateConflict
from storage.instances import changes, instances, of_projects, of_teams, spans
from storage.instances.instances import Instance
from storage.instances.spans import BilledSpan


class Piece(NamedTuple):
    """What the model says of one instance from one moment to another."""

    team_id: str | None
    cents_a_month: int
    since: datetime
    until: datetime


class Now(NamedTuple):
    team_id: str | None
    cents_a_month: int | None
    since: datetime


def cents_a_month(instance: Instance) -> int | None:
    """None: nothing is paid for it, and it is not even counted."""
    if instance.ready_at is None or instance.desired_status in {"deleted", "erased"}:
        return None
    size = SIZES[instance.size]
    beyond = max(0, instance.storage_bytes - size.storage_bytes_included)
    compute = size.price_usd_cents if instance.status in {"running", "resizing"} else 0
    return compute + 12 * -(-beyond // GB)


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
            if was is not None and was.cents_a_month is not None:
                ended = Piece(was.team_id, was.cents_a_month, was.since, self.clock.moment)
                self.pieces.append(ended)
            self.now[one.id] = Now(one.team_id, cents_a_month(one), self.clock.moment)

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

    def expected(self, month: Month) -> dict[str, Fraction]:
        """Cent by cent of each team, in micro-cents."""
        now = self.clock.moment
        lasting = [
            Piece(team_id, cents, since, now)
            for team_id, cents, since in self.now.values()
            if cents is not None
        ]
        sums = dict.fromkeys(self.teams, Fraction())
        for piece in (*self.pieces, *lasting):
            since, until = max(piece.since, month.begin), min(piece.until, month.end)
            if piece.team_id is not None and since < until:
                seconds = until.replace(microsecond=0) - since.replace(microsecond=0)
                cost = Fraction(piece.cents_a_month * int(seconds.total_seconds()))
                sums[piece.team_id] += cost * MICRO_CENTS / month.seconds
        return sums

    def teardown(self) -> None:
        try:
            if self.now:
                self.passes(86_400_000)
                self.compare()
        finally:
            self.listening.__exit__(None, None, None)
            self.database.dispose()

    def compare(self) -> None:
        month = budgets.month_of(BEGIN)
        while month.begin <= self.clock.moment:
            until = min(month.end, self.clock.moment)
            with self.database.read() as db:
                found = spans.usage(db, self.teams, since=month.begin, until=until)
            told = {
                team_id: budgets.spend(month, of_team, until).month_to_date
                for team_id, of_team in found.items()
            }
            assert told == {each: int(cost) for each, cost in self.expected(month).items()}
            month = budgets.month_of(month.end)
        self.check_rows()

    def check_rows(self) -> None:
        """Without a gap where there is none, and only of what is paid for."""
        with self.database.read() as db:
            rows = select(BilledSpan).where(BilledSpan.org_id == self.tenant.org_id)
            found = list(db.scalars(rows.order_by(BilledSpan.instance_id, BilledSpan.id)))
        for one, following in itertools.pairwise(found):
            if one.instance_id == following.instance_id:
                assert one.since <= (one.until or BEGIN) <= following.since
        lasting = {one.instance_id for one in found if one.until is None}
        assert lasting == {one for one, (_, cents, _) in self.now.items() if cents is not None}


def run(databases: Databases, dialect: str, examples: int, steps: int) -> None:
    machine = type("Accounts", (Accounts,), {"url": databases.migrated(dialect)})
    chosen = settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_sum_of_spans_is_the_models(databases: Databases, dialect: str) -> None:
    run(databases, dialect, examples=20, steps=30)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_sum_of_spans_is_the_models_at_length(databases: Databases, dialect: str) -> None:
    run(databases, dialect, examples=300, steps=50)
