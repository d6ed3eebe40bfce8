"""Spending caps: each threshold is told once, and what costs something pauses where it is to."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from contract_tests.workflows.known import enqueue, take_turn
from contract_tests.workflows.stage import Stage
from control.policy.months import Month, month_of
from storage.access import organizations, teams
from storage.events.alerts import Alert
from storage.events.audit import AuditEntry
from storage.events.events import Event
from storage.instances.instances import Instance
from storage.instances.spans import BilledSpan

LIMIT = 1_000


@pytest.fixture
def month(stage: Stage) -> Month:
    """The next one, an hour before its end, so that what costs something lies behind."""
    with stage.database.read() as db:
        now = stage.database.now(db)
    month = month_of(month_of(now).end)
    stage.pass_time((month.end - timedelta(hours=1) - now).total_seconds())
    return month


def cap(stage: Stage, cents: int | None, on_reach: str = "refuse") -> None:
    with stage.database.write() as db:
        organizations.fetch(db, stage.org_id).cap_spending(cents, on_reach)


def spends(stage: Stage, instance: Instance, month: Month, percent: int) -> None:
    """So many percent of LIMIT, by something that has ended: a whole month of `s0` costs that."""
    length = timedelta(seconds=month.seconds) * percent / 100
    with stage.database.write() as db:
        db.add(
            BilledSpan(
                org_id=stage.org_id,
                instance_id=instance.id,
                team_id=teams.everyone_of(stage.org_id),
                size="s0",
                storage_bytes=10**9,
                runs=True,
                since=month.begin,
                until=month.begin + length,
            )
        )


def look(stage: Stage) -> None:
    with stage.database.write() as db:
        take_turn(db, "spending_caps.watch")
    stage.settle()


def told(stage: Stage) -> list[int]:
    rows = select(Event).where(Event.type == "spending_cap.threshold.v1").order_by(Event.seq)
    with stage.database.read() as db:
        return [one.data["threshold_percent"] for one in db.scalars(rows)]


def alerts(stage: Stage) -> list[tuple[str, bool]]:
    rows = select(Alert).where(Alert.kind == "spending_cap_threshold").order_by(Alert.id)
    with stage.database.read() as db:
        return [(one.severity, one.resolved_at is not None) for one in db.scalars(rows)]


def test_each_threshold_is_told_once(stage: Stage, month: Month) -> None:
    instance, heard = stage.instance("running"), list[int]()
    cap(stage, LIMIT)
    for percent, more in ((49, []), (1, [50]), (29, []), (1, [80]), (19, []), (1, [100]), (50, [])):
        spends(stage, instance, month, percent)
        heard += more
        for _ in range(2):
            look(stage)
            assert told(stage) == heard
    assert alerts(stage) == [("critical", False)]
    cap(stage, 3 * LIMIT)
    look(stage)
    assert (told(stage), alerts(stage)) == ([50, 80, 100], [("critical", True)])
    assert stage.fetch(instance).status == "running"


def test_two_workers_tell_each_threshold_once(stage: Stage, month: Month) -> None:
    spends(stage, stage.instance("running"), month, 85)
    cap(stage, LIMIT)
    with stage.database.write() as db:
        for lane in ("one", "two"):
            enqueue(db, "spending_caps.watch", lane)
    stage.settle()
    assert told(stage) == [50, 80]


def test_what_costs_something_is_paused_once_all_is_spent(stage: Stage, month: Month) -> None:
    dear, other = (stage.instance("running", size="s0") for _ in range(2))
    free = stage.instance("running")
    busy = stage.instance("resizing", size="s1")
    cap(stage, 10 * LIMIT, "pause")
    look(stage)
    assert [stage.fetch(one).status for one in (dear, other)] == ["running", "running"]
    for _ in range(2):
        spends(stage, dear, month, 50)
    cap(stage, LIMIT, "pause")
    look(stage)
    assert [stage.fetch(one).status for one in (dear, other)] == ["paused", "paused"]
    assert stage.fetch(free).status == "running"
    rows = select(AuditEntry).where(AuditEntry.action == "instance.pause")
    with stage.database.read() as db:
        found = {one.target: one for one in db.scalars(rows)}
    assert set(found) == {dear.id, other.id}
    assert {(one.actor_kind, one.detail["reason"]) for one in found.values()} == {
        ("system", "spending_cap")
    }
    # What was being changed is paused when that is done; and nothing is resumed by itself.
    with stage.database.write() as db:
        db.get_one(Instance, busy.id).status = "running"
    look(stage)
    assert stage.fetch(busy).status == "paused"
    cap(stage, None)
    look(stage)
    assert stage.fetch(dear).status == "paused"


def test_a_new_month_begins_anew(stage: Stage, month: Month) -> None:
    instance = stage.instance("running")
    for _ in range(2):
        spends(stage, instance, month, 60)
    cap(stage, LIMIT)
    look(stage)
    stage.pass_time(3700)
    look(stage)
    assert (told(stage), alerts(stage)) == ([50, 80, 100], [("critical", True)])


def test_an_alert_of_it_is_sent_by_email(stage: Stage, month: Month) -> None:
    instance = stage.instance("running")
    for _ in range(2):
        spends(stage, instance, month, 60)
    cap(stage, LIMIT)
    look(stage)
    with stage.database.read() as db:
        alert = db.scalars(select(Alert).where(Alert.severity == "critical")).one()
    assert alert.is_mail_due
    assert alert.title == "Org has spent 100 % of its spending cap"
    assert alert.reason.startswith("12.00 USD of 10.00 USD are spent in")
