"""Invoices of a month: killed at any statement, they are all made, once, with numbers in a row."""

from dataclasses import replace
from typing import Any

from sqlalchemy import event, select

from contract_tests import invoicing
from contract_tests.workflows.stage import LEASE_S, Killed, Stage
from control.policy.invoices import FINAL_AFTER
from control.policy.months import month_of
from control.work import enqueue
from control.workflows.billing import invoices as work
from storage import identifiers
from storage.access import organizations
from storage.billing.invoices import Invoice
from storage.database import now


def test_killed_at_any_statement_each_is_made_once(stage: Stage) -> None:
    """The month after each kill goes on where the one before it ended."""
    kill_at = statements = months = 0

    @event.listens_for(stage.database.engine, "before_cursor_execute")
    def _kill(*_of: Any) -> None:
        nonlocal statements
        statements += 1
        if statements == kill_at:
            raise Killed

    with stage.database.write() as db:
        for _ in range(2):
            slug = identifiers.new("s").lower()
            organizations.create(db, name="Org", slug=slug, plan="solo")
        left, first = month_of(now(db)).end - now(db), invoicing.next_month(now(db))
    issuer = invoicing.issuer_from(first)
    stage.pass_time(left.total_seconds())
    settings = replace(stage.services.settings, issuer=issuer)
    stage.services = replace(stage.services, settings=settings)
    for number in range(1, 400, 9):
        months += 1
        with stage.database.write() as db:
            left = month_of(now(db)).end + FINAL_AFTER - now(db)
        stage.pass_time(left.total_seconds() + 1)
        with stage.database.write() as db:
            enqueue(db, work.finalize, "test:invoices")
        statements, kill_at, killed = 0, number, False
        try:
            stage.turn()
        except Killed:
            killed = True
        kill_at = 0
        stage.pass_time(LEASE_S + 1)
        while stage.turn():
            pass
        if not killed:
            break
    assert not killed
    with stage.database.read() as db:
        found = list(db.scalars(select(Invoice).order_by(Invoice.id)))
    assert len(found) == 2 * months == len({(one.org_id, one.month) for one in found})
    by_series: dict[str, list[int]] = {}
    for one in found:
        series, _, count = one.number.rpartition("-")
        by_series.setdefault(series, []).append(int(count))
    for counts in by_series.values():
        assert counts == list(range(1, len(counts) + 1))
