"""Spans: nothing that is sent to the database passes them by, and what they say stays."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from sqlalchemy import select
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session

from contract_tests.databases import DIALECTS, Databases
from contract_tests.storage import tenants
from contract_tests.storage.instances.clock import BEGIN, clock_of
from contract_tests.storage.query_plans import query_plans
from contract_tests.storage.tenants import Tenant
from storage import migrations
from storage.access import teams
from storage.billing.whose import Whose
from storage.columns import EPOCH
from storage.database import Database
from storage.instances import spans
from storage.instances.instances import Instance
from storage.instances.spans import BilledSpan


def told(db: Session, instance: Instance) -> list[tuple[Any, ...]]:
    """What its spans say, oldest first; of those that have ended, that they have."""
    rows = select(BilledSpan).where(BilledSpan.instance_id == instance.id).order_by(BilledSpan.id)
    return [
        (one.team_id, one.size, one.storage_bytes, one.runs, one.until is not None)
        for one in db.scalars(rows)
    ]


def running(db: Session, tenant: Tenant, **values: Any) -> Instance:
    chosen = {"status": "running", "ready_at": EPOCH, "size": "s0", **values}
    return tenants.instance(db, tenant, **chosen)


CHANGES: Final = {
    "size": "size = 's1'",
    "storage_bytes": "storage_bytes = 7000000000",
    "status": "status = 'paused'",
    "desired_status": "desired_status = 'deleted'",
    "ready_at": "ready_at = NULL",
    "team_id": "team_id = NULL",
}


@pytest.mark.parametrize("column", CHANGES)
def test_no_statement_passes_the_record_by(database: Database, column: str) -> None:
    """Sent past all that this program does, by the driver, without a word of when it was."""
    with database.write() as db:
        instance = running(db, tenants.make(db))
        before = told(db, instance)
    with database.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE instances SET {CHANGES[column]}")
    with database.read() as db:
        ended, *since_then = told(db, instance)
        assert before == [(*ended[:-1], False)]
        gone = column in {"desired_status", "ready_at"}
        assert len(since_then) == (0 if gone else 1)
        assert since_then != before
        spans_of_it = list(db.scalars(select(BilledSpan).order_by(BilledSpan.id)))
        assert spans_of_it[0].until is not None
        assert database.now(db) - spans_of_it[0].until < timedelta(minutes=1)


def test_what_costs_nothing_else_makes_no_span(database: Database) -> None:
    with database.write() as db:
        instance = running(db, tenants.make(db))
        before = told(db, instance)
        instance.name, instance.cell_reason = "other", "why"
        db.flush()
        instance.updated_at = database.now(db)
        db.flush()
        instance.change(waits=True)
        db.flush()
        assert told(db, instance) == before


def test_nothing_is_paid_until_it_is_ready_and_once_it_is_to_go(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        instance.provisioning()
        instance.became_failed("why")
        db.flush()
        assert told(db, instance) == []
        instance.status = "provisioning"
        instance.became_running(EPOCH)
        db.flush()
        assert [runs for *_, runs, _ in told(db, instance)] == [True]
        instance.delete(None)
        db.flush()
        assert [ended for *_, ended in told(db, instance)] == [True]
        instance.became_deleted()
        db.flush()
        assert len(told(db, instance)) == 1
        instance.undelete(EPOCH)
        db.flush()
        assert [(runs, ended) for *_, runs, ended in told(db, instance)] == [
            (True, True),
            (False, False),
        ]


HANDS: Final[dict[str, Callable[[BilledSpan], None]]] = {
    "longer": lambda span: setattr(span, "until", span.since + timedelta(days=1)),
    "open again": lambda span: setattr(span, "until", None),
    "larger": lambda span: setattr(span, "size", "xl32"),
    "another's": lambda span: setattr(span, "team_id", None),
}


@pytest.mark.parametrize("hand", HANDS)
def test_what_has_ended_is_not_rewritten(database: Database, hand: str) -> None:
    with database.write() as db:
        instance = running(db, tenants.make(db))
        instance.delete(None)
    refused = pytest.raises(DatabaseError, match="of a span its end is written, once")
    with refused, database.write() as db:
        HANDS[hand](db.scalars(select(BilledSpan).where(BilledSpan.until.is_not(None))).one())


@pytest.mark.parametrize("hand", ["larger", "another's"])
def test_what_lasts_only_ends(database: Database, hand: str) -> None:
    with database.write() as db:
        running(db, tenants.make(db))
    refused = pytest.raises(DatabaseError, match="of a span its end is written, once")
    with refused, database.write() as db:
        HANDS[hand](db.scalars(select(BilledSpan)).one())


def test_a_clock_that_was_set_back_makes_no_overlap(database: Database) -> None:
    with database.write() as db, clock_of(database) as clock:
        instance = running(db, tenants.make(db))
        clock.pass_time(-3_600_000)
        instance.pause()
        db.flush()
        clock.pass_time(7_200_000)
        instance.became_paused("user")
        instance.resume()
        instance.became_running(EPOCH)
        db.flush()
        found = list(db.scalars(select(BilledSpan).order_by(BilledSpan.id)))
    moments = [(one.since, one.until) for one in found]
    later = BEGIN + timedelta(hours=1)
    assert moments == [(BEGIN, BEGIN), (BEGIN, later), (later, None)]


def test_only_the_teams_asked_for_and_the_time_asked_for_are_counted(database: Database) -> None:
    with database.write() as db, clock_of(database) as clock:
        tenant, other = tenants.make(db), tenants.make(db)
        everyone, theirs = (teams.everyone_of(one.org_id) for one in (tenant, other))
        running(db, tenant)
        running(db, tenant)
        running(db, other)
        paused = running(db, tenant, size="s1")
        clock.pass_time(10_900)
        paused.pause()
        db.flush()
        clock.pass_time(20_000)

        def asked(*of: str, since: datetime, until: datetime) -> Any:
            whose = Whose(team_ids=of)
            found = sorted(spans.sums(db, whose, since=since, until=until))
            return {
                team_id: sorted(one[3:4] + one[5:] for one in found if one.team_id == team_id)
                for team_id in of
            }

        end = clock.moment
        assert asked(everyone, since=EPOCH, until=end) == {
            everyone: [
                ("s0", True, 31, 1),
                ("s0", True, 31, 1),
                ("s1", False, 20, 1),
                ("s1", True, 11, 0),
            ]
        }
        # As it was then, the one that is paused was to go on as well.
        early = BEGIN + timedelta(seconds=5)
        assert asked(everyone, theirs, since=BEGIN + timedelta(seconds=2), until=early) == {
            everyone: [("s0", True, 3, 1), ("s0", True, 3, 1), ("s1", True, 3, 1)],
            theirs: [("s0", True, 3, 1)],
        }
        assert asked(theirs, since=EPOCH, until=BEGIN) == {theirs: []}
        assert asked("team_none", since=EPOCH, until=end) == {"team_none": []}


def test_a_team_is_counted_by_an_index(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        running(db, tenant)
    with database.read() as db, query_plans(db) as plans:
        whose = Whose(team_ids=[teams.everyone_of(tenant.org_id)])
        list(spans.sums(db, whose, since=EPOCH, until=BEGIN))
        assert not any(plan.startswith("SCAN") for plan in plans), plans
        assert any("ix_spans_team_id_until" in plan for plan in plans) or not plans, plans


@pytest.mark.parametrize("dialect", DIALECTS)
def test_instances_from_before_have_spans_since_they_last_changed(
    databases: Databases, dialect: str
) -> None:
    database = Database(databases.migrated(dialect))
    with database.write() as db:
        tenant = tenants.make(db)
        runs = running(db, tenant)
        paused = running(db, tenant, status="paused", desired_status="paused")
        tenants.instance(db, tenant)
        running(db, tenant, status="deleted", desired_status="deleted")
    migrations.downgrade(database.engine, "202611292320")
    database.migrate()
    with database.read() as db:
        found = {one.instance_id: one for one in db.scalars(select(BilledSpan))}
        assert set(found) == {runs.id, paused.id}
        assert [found[one.id].runs for one in (runs, paused)] == [True, False]
        assert [found[one.id].since for one in (runs, paused)] == [
            db.get_one(Instance, one.id).updated_at for one in (runs, paused)
        ]
        assert {one.until for one in found.values()} == {None}
    database.dispose()
