"""Egress that cells report, for the organizations that send it to a SIEM."""

import pytest
from sqlalchemy import select

from contract_tests.workflows import siem
from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import Stage
from control.workflows.events import egress as collecting
from storage.access import organizations
from storage.database import now
from storage.events import egress, siem_deliveries
from storage.events.egress import EgressReport


def collect(stage: Stage) -> list[EgressReport]:
    """What there is after another turn."""
    with stage.database.write() as db:
        take_turn(db, "egress.collect")
    stage.settle()
    with stage.database.read() as db:
        return list(db.scalars(select(EgressReport).order_by(EgressReport.seq)))


def test_reports_are_recorded_once_and_numbered(stage: Stage) -> None:
    siem.delivery(stage)
    instance = stage.instance("running")
    stage.cell.sends_out("0a0a0a0a-1", siem.report(instance.id), siem.report(instance.id))
    stage.cell.sends_out("0a0a0a0a-2", siem.report(instance.id, bytes_out=7))
    assert [each.seq for each in collect(stage)] == [1, 2, 3]
    assert stage.cell.metered == {instance.id}
    assert stage.cell.egress == {}, "the cell is told what was taken"
    stage.cell.sends_out("0a0a0a0a-3", siem.report(instance.id, bytes_out=8))
    found = collect(stage)
    assert [each.data["bytes_out"] for each in found] == [5, 5, 7, 8]
    assert {each.org_id for each in found} == {stage.org_id}
    assert found[0].data["until"] == "2026-11-21T09:00:10.000Z"


def test_no_cell_is_asked_where_nobody_wants_it(stage: Stage) -> None:
    delivery = siem.delivery(stage)
    instance = stage.instance("running")
    with stage.database.write() as db:
        siem_deliveries.switch(db, db.merge(delivery), enabled=False, now=now(db))
    stage.cell.sends_out("0a0a0a0a-1", siem.report(instance.id))
    assert collect(stage) == []
    assert stage.cell.metered == set()


def test_a_cell_reports_only_of_its_own_instances_and_of_who_asks(stage: Stage) -> None:
    """A cell that was taken over makes up what another organization's connections sent."""
    mine = stage.instance("running")
    with stage.database.write() as db:
        other = organizations.create(db, name="Other", slug="other", plan="free").id
    siem.delivery(stage, other)
    stage.cell.sends_out("0a0a0a0a-1", siem.report(mine.id), siem.report("inst_" + "0" * 26))
    assert collect(stage) == []
    siem.delivery(stage)
    found = collect(stage)
    assert [each.org_id for each in found] == [stage.org_id]


def test_what_nobody_takes_is_bounded_and_counted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "KEPT_MAX", 3)
    siem.delivery(stage)
    instance = stage.instance("running")
    for number in range(3):
        stage.cell.sends_out(f"0a0a0a0a-{number}", *[siem.report(instance.id)] * 2)
        collect(stage)
    assert [each.seq for each in collect(stage)] == [1, 2, 3]
    with stage.database.read() as db:
        assert egress.last(db, stage.org_id) == 6, "the others are a gap"


def test_reports_are_forgotten_after_a_day(stage: Stage) -> None:
    siem.delivery(stage)
    instance = stage.instance("running")
    stage.cell.sends_out("0a0a0a0a-1", siem.report(instance.id))
    assert collect(stage)
    stage.pass_time(86_400 + 1)
    with stage.database.write() as db:
        take_turn(db, "housekeeping")
    stage.settle()
    with stage.database.read() as db:
        assert egress.waiting(db, stage.org_id) == 0
