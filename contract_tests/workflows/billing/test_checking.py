"""The check of bills finds each kind of difference, and none where there is none."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
import structlog
from sqlalchemy import text
from structlog.testing import capture_logs

from contract_tests import invoicing
from contract_tests.api import letters
from contract_tests.by_day import one_in
from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import Stage
from control.billing import correcting
from control.billing.reconciling import BillingDifference
from control.cells.client import CellUnavailable
from control.policy.months import HOUR, Month, hour_of, month_of
from control.policy.sizes import GB
from control.workflows.billing import checking, measures
from control.workflows.billing import invoices as invoice_work
from control.workflows.billing.checking import Checked
from storage.access import memberships, users
from storage.access.organizations import Organization
from storage.billing import billing_checks, meters
from storage.billing.meters import MeterReading
from storage.catalogue import cells
from storage.database import now
from storage.instances.instances import Instance


def passes(stage: Stage, until: datetime) -> None:
    with stage.database.read() as db:
        left = until - now(db)
    stage.pass_time(left.total_seconds())


def turn(stage: Stage, *kinds: str) -> None:
    for kind in kinds:
        with stage.database.write() as db:
            take_turn(db, kind)
        while stage.turn():
            pass


@pytest.fixture
def month(stage: Stage) -> Month:
    """A month that is over and billed; of two of its hours everything was metered."""
    with stage.database.write() as db:
        db.get_one(Organization, stage.org_id).plan = "team"
        person = users.create(db, email=letters.new_email(), name="Ada")
        memberships.create(db, stage.org_id, person.id, "owner")
        month = invoicing.next_month(now(db))
    instance = stage.instance("running", size="s1")
    issuer = invoicing.issuer_from(month)
    settings = replace(stage.services.settings, issuer=issuer)
    stage.services = replace(stage.services, settings=settings)
    last = month.end - HOUR
    passes(stage, last + timedelta(minutes=5))
    for hour in (last - HOUR, last):
        stage.cell.sent_bytes[hour] = {instance.id: 3 * GB}
        turn(stage, "usage.meter", "usage.egress")
        passes(stage, hour + 2 * HOUR + timedelta(minutes=5))
    turn(stage, "usage.meter", "usage.egress")
    passes(stage, month.end + timedelta(days=2, minutes=5))
    while invoice_work.finalize_next(stage.services, issuer, month):
        pass
    return month


def differences(stage: Stage, month: Month) -> list[BillingDifference]:
    found = list(checking.differences(stage.services, month, Checked()))
    return sorted(found)


def by_hand(stage: Stage, *statements: str) -> None:
    with stage.database.engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def unkept(stage: Stage, trigger: str, table: str) -> str:
    """So that by hand can be changed what nobody can change."""
    if stage.database.engine.dialect.name == "postgresql":
        return f"ALTER TABLE {table} DISABLE TRIGGER {trigger}"
    return f"DROP TRIGGER {trigger}"


Change = Callable[[Stage, Month], None]


def lost_seats(stage: Stage, _month: Month) -> None:
    by_hand(stage, "DELETE FROM meter_entries WHERE meter = 'seats'")


def lost_egress(stage: Stage, _month: Month) -> None:
    by_hand(stage, "DELETE FROM meter_entries WHERE meter = 'egress'")


def _doubled(meter: str) -> Change:
    def change(stage: Stage, _month: Month) -> None:
        columns = "subject_id, meter, hour, org_id, team_id, region, plan, quantity, created_at"
        by_hand(
            stage,
            f"INSERT INTO meter_entries (seq, {columns}) SELECT 1, {columns} FROM meter_entries"
            f" WHERE meter = '{meter}'",
        )

    return change


def altered_line(stage: Stage, _month: Month) -> None:
    lines = "replace(CAST(lines AS TEXT), '10000000000', '10000000001')"
    if stage.database.engine.dialect.name == "postgresql":
        lines = f"CAST({lines} AS JSON)"
    by_hand(
        stage, unkept(stage, "invoices_update", "invoices"), f"UPDATE invoices SET lines = {lines}"
    )


def altered_total(stage: Stage, _month: Month) -> None:
    by_hand(
        stage,
        unkept(stage, "invoices_update", "invoices"),
        "UPDATE invoices SET total_cents = total_cents - 1",
    )


def lost_invoice(stage: Stage, _month: Month) -> None:
    by_hand(stage, unkept(stage, "invoices_delete", "invoices"), "DELETE FROM invoices")


def dearer(stage: Stage, month: Month) -> None:
    """A price of the past that was changed."""
    settings = stage.services.settings
    one = settings.prices.at(month.begin)
    lists = (replace(one, plans={**one.plans, "team": 1}),)
    changed = replace(settings, prices=replace(settings.prices, lists=lists))
    stage.services = replace(stage.services, settings=changed)


KINDS: dict[str, tuple[Change, set[tuple[str, str]]]] = {
    "seats were lost": (lost_seats, {("seats", "hours")}),
    "egress was lost": (
        lost_egress,
        {("egress", "counted"), ("egress", "billed"), ("egress", "cost")},
    ),
    "seats were read twice": (_doubled("seats"), {("seats", "read twice")}),
    "egress was read twice": (
        _doubled("egress"),
        {("egress", "counted"), ("egress", "billed"), ("egress", "cost")},
    ),
    "a line was altered": (altered_line, {("plan", "cost")}),
    "a total was altered": (altered_total, {("total", "invoice")}),
    "a price was altered": (dearer, {("plan", "cost")}),
    "an invoice was lost": (
        lost_invoice,
        {(metric, what) for metric in ("plan", "egress") for what in ("billed", "cost")},
    ),
}


@pytest.mark.parametrize("kind", one_in(3, KINDS))
def test_each_kind_of_difference_is_found(stage: Stage, month: Month, kind: str) -> None:
    """And none before it."""
    assert differences(stage, month) == []
    change, expected = KINDS[kind]
    change(stage, month)
    found = [one for one in differences(stage, month) if one.org_id == stage.org_id]
    assert {(one.metric, one.what) for one in found} == expected
    assert all(one.expected != one.found for one in found)


def test_what_is_corrected_or_metered_late_is_no_difference(stage: Stage, month: Month) -> None:
    with stage.database.read() as db:
        instance = db.query(Instance).filter_by(org_id=stage.org_id).first()
        moment = now(db)
    assert instance is not None
    book, hour = stage.services.settings.prices, month.end - 2 * HOUR
    reading = MeterReading(
        *(instance.id, "egress", hour, stage.org_id, instance.team_id, "local", "team", 5 * GB)
    )
    with stage.database.write() as db:
        for _ in range(2):
            correcting.note(db, book, [reading, reading._replace(quantity=4 * GB)], moment)
            seats = reading._replace(subject_id=stage.org_id, meter="seats", hour=hour - HOUR)
            correcting.note(
                db, book, [seats._replace(quantity=2, team_id=None, region=None)], moment
            )
    stage.cell.sent_bytes[hour][instance.id] = 5 * GB
    assert differences(stage, month) == []
    with stage.database.write() as db:
        correcting.correct(db, book, reading._replace(quantity=0), "not theirs", moment)
        assert [one.quantity for one in meters.of_hour(db, *reading[:3])] == [3 * GB]
    assert differences(stage, month) == []
    this = month_of(moment)
    passes(stage, this.end + timedelta(days=2, minutes=5))
    assert stage.services.settings.issuer is not None
    while invoice_work.finalize_next(stage.services, stage.services.settings.issuer, this):
        pass
    assert differences(stage, this) == []


def test_the_check_tells_the_operator(stage: Stage, month: Month) -> None:
    altered_total(stage, month)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with capture_logs() as logged:
        turn(stage, "billing.check")
    (told,) = [one for one in logged if one["event"] == checking.DIFFERENCE]
    assert (told["org_id"], told["metric"], told["log_level"]) == (stage.org_id, "total", "error")
    with stage.database.read() as db:
        this, before = billing_checks.newest(db, 2)
        assert (before.month, before.differences) == (month.name, 1)
        assert (this.differences, this.organizations) == (0, before.organizations)
        assert dict(measures.DIFFERENCES.read(db)) == {(this.month,): 0, (month.name,): 1}
        ((_, at),) = measures.CHECKED_AT.read(db)
    assert at == this.checked_at.timestamp()


def test_a_silent_cell_is_told_and_is_no_difference(stage: Stage, month: Month) -> None:
    with stage.database.read() as db:
        (cell,) = [one.id for one in cells.every(db) if one.egress_metered_hour is not None]

    def silent(action: str, _instance_id: str) -> None:
        if action == "sent_in":
            raise CellUnavailable("it is silent")

    stage.cell.before = silent
    checked = Checked()
    assert list(checking.differences(stage.services, month, checked)) == []
    assert checked.silent_cells == [cell]
    assert hour_of(month.begin) == month.begin
