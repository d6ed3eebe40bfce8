"""The ledger of credits: whoever writes what at the same time, none goes below zero."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session

from storage import identifiers
from storage.access import organizations
from storage.billing import credit_ledger
from storage.billing.credit_ledger import Credit, CreditUse
from storage.database import Database
from storage.errors import StateConflict

MONTHS = [datetime(2026, month, 1, tzinfo=UTC) for month in range(1, 13)]
_numbers = count()


def new_org(db: Session) -> str:
    return organizations.create(db, name="Org", slug=identifiers.new("org").lower()).id


def granted(
    db: Session, org_id: str, cents: int, expires_at: datetime | None = None, **values: str
) -> Credit:
    chosen = {"kind": "granted", "currency": "USD", "reason": "why", **values}
    source = chosen.pop("source", f"test:{org_id}:{next(_numbers)}")
    return credit_ledger.grant(
        db, org_id, amount_cents=cents, expires_at=expires_at, source=source, **chosen
    )


def used(db: Session, org_id: str, cents: int, until: datetime = MONTHS[0]) -> list[int]:
    invoice_id = identifiers.new("invoice_")
    taken = credit_ledger.use(db, org_id, invoice_id, cents, currency="USD", until=until)
    return [one.amount_cents for one in taken]


def test_what_expires_first_is_used_first(database: Database) -> None:
    with database.write() as db:
        org_id = new_org(db)
        ids = [
            granted(db, org_id, cents, expires_at).id
            for cents, expires_at in (
                *((10, None), (20, MONTHS[6]), (30, MONTHS[3])),
                *((40, None), (50, MONTHS[3]), (60, MONTHS[1])),
            )
        ]
        assert credit_ledger.balance(db, org_id, MONTHS[0], "USD") == 210
        assert credit_ledger.balance(db, org_id, MONTHS[1], "USD") == 150
        assert credit_ledger.balance(db, org_id, MONTHS[0], "EUR") == 0
        taken = credit_ledger.use(db, org_id, "invoice_1", 155, currency="USD", until=MONTHS[3])
        # That of February is over by the end of March; the other two of April are not.
        order = [(ids.index(one.credit_id), one.amount_cents) for one in taken]
        assert order == [(2, 30), (4, 50), (1, 20), (0, 10), (3, 40)]
        assert used(db, org_id, 10, MONTHS[3]) == []
        assert used(db, org_id, 100, MONTHS[1]) == [60]


@settings(deadline=None, max_examples=40)
@given(
    grants=st.lists(
        st.tuples(st.integers(1, 500), st.sampled_from([None, *MONTHS])), min_size=1, max_size=6
    ),
    uses=st.lists(
        st.tuples(st.integers(0, 700), st.sampled_from(MONTHS), st.booleans()), max_size=8
    ),
)
def test_the_ledger_is_what_a_model_says(
    database: Database,
    grants: list[tuple[int, datetime | None]],
    uses: list[tuple[int, datetime, bool]],
) -> None:
    never = datetime.max.replace(tzinfo=UTC)
    with database.write() as db:
        org_id = new_org(db)
        held = [(granted(db, org_id, *one), one[1] or never) for one in grants]
        left = {credit.id: credit.amount_cents for credit, _ in held}
        for cents, until, is_given_back in uses:
            invoice_id, wanted = identifiers.new("invoice_"), cents
            expected: dict[str, int] = {}
            for credit, end in sorted(held, key=lambda one: (one[1], one[0].id)):
                if end >= until and (taken := min(wanted, left[credit.id])):
                    expected[credit.id] = taken
                    wanted -= taken
            found = credit_ledger.use(db, org_id, invoice_id, cents, currency="USD", until=until)
            assert {one.credit_id: one.amount_cents for one in found} == expected
            if is_given_back:
                first = credit_ledger.give_back(db, invoice_id, cents // 2)
                rest = credit_ledger.give_back(db, invoice_id, cents)
                given = [sum(one.amount_cents for one in each) for each in (first, rest)]
                assert sum(given) == sum(expected.values())
                assert given[0] == min(cents // 2, sum(expected.values()))
                assert credit_ledger.give_back(db, invoice_id, cents) == []
            else:
                left = {each: left[each] - expected.get(each, 0) for each in left}
        for credit, _ in held:
            db.refresh(credit)
            assert credit.remaining_cents == left[credit.id] >= 0


@pytest.mark.every_database  # what locks is the database
def test_of_twenty_uses_at_once_each_gets_what_is_left(database: Database) -> None:
    with database.write() as db:
        org_id = new_org(db)
        granted(db, org_id, 70, MONTHS[2])
        granted(db, org_id, 30)

    def use(_number: int) -> int:
        with database.write() as db:
            return sum(used(db, org_id, 7))

    with ThreadPoolExecutor(20) as threads:
        taken = sorted(threads.map(use, range(20)))
    assert taken == [0] * 5 + [2] + [7] * 14
    with database.read() as db:
        assert credit_ledger.balance(db, org_id, MONTHS[0], "USD") == 0
        sums = select(func.sum(CreditUse.amount_cents)).where(CreditUse.org_id == org_id)
        assert db.scalar(sums) == 100


FORBIDDEN = {
    "a use beyond what is left": "INSERT INTO credit_uses (id, org_id, credit_id, invoice_id,"
    " amount_cents, created_at) SELECT id, org_id, id, 'invoice_1', 101, created_at FROM credits",
    "more given back than was used": "INSERT INTO credit_uses (id, org_id, credit_id, invoice_id,"
    " amount_cents, created_at) SELECT id, org_id, id, 'invoice_1', -41, created_at FROM credits",
    "a larger grant": "UPDATE credits SET amount_cents = 200",
    "another sum of uses": "UPDATE credits SET used_cents = 0",
    "a later expiry": "UPDATE credits SET expires_at = created_at",
    "another reason": "UPDATE credits SET reason = 'none'",
    "no grant": "DELETE FROM credits",
    "a changed use": "UPDATE credit_uses SET amount_cents = 1",
    "no use": "DELETE FROM credit_uses",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_statement_changes_what_is_written(database: Database, what: str) -> None:
    """Sent by the driver, past all that this program does."""
    with database.write() as db:
        org_id = new_org(db)
        credit = granted(db, org_id, 100)
        assert used(db, org_id, 40) == [40]
    with pytest.raises(DatabaseError), database.engine.begin() as connection:
        connection.exec_driver_sql(FORBIDDEN[what])
    with database.read() as db:
        found = db.scalars(select(Credit)).one()
        assert (found.id, found.amount_cents, found.used_cents) == (credit.id, 100, 40)
        assert db.scalar(select(func.sum(CreditUse.amount_cents))) == 40


def test_a_use_is_of_the_organization_with_the_credit(database: Database) -> None:
    with database.write() as db:
        credit = granted(db, new_org(db), 100)
        other = new_org(db)
        assert used(db, other, 10) == []
    wrong = CreditUse(id="cru_1", org_id=other, credit_id=credit.id, invoice_id="invoice_1")
    wrong.amount_cents = 1
    with pytest.raises(DatabaseError), database.write() as db:
        db.add(wrong)


def test_nothing_is_granted_twice_for_the_same(database: Database) -> None:
    with database.write() as db:
        org_id = new_org(db)
        granted(db, org_id, 100, source="papp_1")
    with pytest.raises(StateConflict, match="granted for this already"), database.write() as db:
        granted(db, org_id, 100, source="papp_1")
