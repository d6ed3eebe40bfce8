"""Who pays for what: parents come and go, and all of a month is paid for once."""

from collections import Counter
from datetime import datetime, timedelta
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from contract_tests.storage.instances.changing_prices import BOOK
from control.billing import charges, consolidating
from control.policy.months import HOUR, month_of
from control.policy.rating import BACKUPS, COMPUTE, EGRESS
from storage import identifiers
from storage.access import organizations, teams
from storage.billing import meters, payers
from storage.billing.meters import MeterReading
from storage.billing.whose import Whose
from storage.database import Database
from storage.instances.spans import BilledSpan

# Prices change on January 21 and on February 1; see `changing_prices`.
BEGIN = datetime.fromisoformat("2031-01-01T00:00:00Z")
MONTHS = [month_of(BEGIN), month_of(BEGIN + timedelta(days=40))]
HOURS = st.integers(0, 24 * (31 + 28) - 1)
# Itself, or one of two parents.
ALONE, LOOMS, MILLS = range(3)


class Run(NamedTuple):
    """Seconds in which an instance runs, since the begin."""

    since: int
    lasts: int


RUNS = st.lists(
    st.builds(Run, st.integers(0, 59 * 86_400), st.integers(1, 50 * 86_400)),
    min_size=1,
    max_size=3,
)
CHANGES = st.lists(st.tuples(HOURS, st.sampled_from([ALONE, LOOMS, MILLS])), min_size=2, max_size=8)
READINGS = st.dictionaries(
    st.tuples(HOURS, st.sampled_from([EGRESS, BACKUPS])), st.integers(1, 10**13), max_size=12
)


class Estate:
    """An organization with one instance, and two that may pay for it."""

    def __init__(self, db: Session) -> None:
        self._db = db
        self._tenant = tenants.make(db)
        self.org_id = self._tenant.org_id
        self.parents = [
            organizations.create(db, name="Org", slug=identifiers.new("org").lower()).id
            for _ in (LOOMS, MILLS)
        ]
        self._instance_id = tenants.instance(db, self._tenant, size="s1", status="deleted").id
        db.flush()

    def payer_is(self, number: int, hour: int) -> None:
        """From that hour on."""
        payers.end(self._db, [self.org_id], BEGIN + hour * HOUR)
        if number != ALONE:
            payer_id = self.parents[number - 1]
            payers.begin(self._db, [self.org_id], payer_id, BEGIN + hour * HOUR)

    def runs(self, run: Run) -> None:
        since = BEGIN + timedelta(seconds=run.since)
        self._db.add(
            BilledSpan(
                org_id=self.org_id,
                team_id=teams.everyone_of(self.org_id),
                instance_id=self._instance_id,
                runs=True,
                size="s1",
                storage_bytes=10**9,
                since=since,
                until=since + timedelta(seconds=run.lasts),
            )
        )

    def used(self, hour: int, meter: str, quantity: int) -> None:
        whose = self.org_id, teams.everyone_of(self.org_id), "local", "team"
        reading = MeterReading(self._instance_id, meter, BEGIN + hour * HOUR, *whose, quantity)
        meters.raise_to(self._db, [reading])


# Each example has organizations of its own in one database.
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(changes=CHANGES, readings=READINGS, runs=RUNS)
def test_all_of_a_month_is_paid_for_once(
    database: Database,
    changes: list[tuple[int, int]],
    readings: dict[tuple[int, str], int],
    runs: list[Run],
) -> None:
    """Whoever pays when: the parts are the whole to the micro-cent, and each pays for its hours."""
    with database.write() as db:
        estate = Estate(db)
        for run in runs:
            estate.runs(run)
        for (hour, meter), quantity in readings.items():
            estate.used(hour, meter, quantity)
        for hour, payer in sorted(changes, key=lambda change: change[0]):
            estate.payer_is(payer, hour)
        db.flush()
        for month in MONTHS:
            orgs = (estate.org_id, *estate.parents)
            found = [consolidating.parts(db, BOOK, org_id, month, month.end) for org_id in orgs]
            parts = [one[estate.org_id].used for one in found if estate.org_id in one]
            whole = charges.tally(db, BOOK, Whose(org_id=estate.org_id), month, month.end)
            assert whole.micro_cents == sum(
                charge.micro_cents for part in parts for charge in part.values()
            )
            seconds = sum(part[COMPUTE].quantity for part in parts if COMPUTE in part)
            assert seconds == _seconds_within(runs, month.begin, month.end)
            for payer, one in enumerate(found):
                part = one[estate.org_id].used if estate.org_id in one else {}
                told = {name: part[name].quantity for name in (EGRESS, BACKUPS) if name in part}
                assert told == _expected(payer, changes, readings, month.begin, month.end)


def _seconds_within(runs: list[Run], begin: datetime, end: datetime) -> int:
    first, last = (int((moment - BEGIN).total_seconds()) for moment in (begin, end))
    return sum(max(0, min(run.since + run.lasts, last) - max(run.since, first)) for run in runs)


def _expected(
    payer: int,
    changes: list[tuple[int, int]],
    readings: dict[tuple[int, str], int],
    begin: datetime,
    end: datetime,
) -> Counter[str]:
    """What hours have that are the payer's; of changes in one hour the last one counts."""
    found: Counter[str] = Counter()
    ordered = sorted(changes, key=lambda change: change[0])
    for (hour, meter), quantity in readings.items():
        who = [to for since, to in ordered if since <= hour]
        if (who[-1] if who else ALONE) == payer and begin <= BEGIN + hour * HOUR < end:
            found[meter] += quantity
    return found
