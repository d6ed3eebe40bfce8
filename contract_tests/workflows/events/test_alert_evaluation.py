"""Alerts that follow from figures: raised once, more severe once, and over once."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from contract_tests.workflows.events.alerted import (
    alerts,
    look,
    measured,
    measured_for_hours,
    plan,
    seen,
    told,
)
from contract_tests.workflows.stage import Stage
from control.events import raise_
from control.policy.alert_kinds import CONNECTIONS
from control.policy.storage_forecast import WINDOW
from control.workflows.events import alert_evaluation
from control.workflows.events.alert_rules import AlertFinding, AlertRule
from handlers.instants import timestamp
from storage import identifiers
from storage.database import now
from storage.events.alerts import Alert
from storage.instances.instances import Instance
from storage.network.domains import Domain

RAISED, RESOLVED = "alert.raised.v1", "alert.resolved.v1"
GB = 10**9


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """Of an organization without quotas."""
    plan(stage, "enterprise")
    return stage


def fills(stage: Stage, instance: Instance, percent: float, a_day: float) -> None:
    """Now so full, after a week in which it grew so much a day, in percent."""
    used = [
        int(max(percent - hours * a_day / 24, 0) * GB / 100)
        for hours in range(WINDOW // timedelta(hours=1))
    ]
    measured_for_hours(stage, instance, used)


def test_storage_that_will_be_full_is_told_of_in_time(stage: Stage) -> None:
    instance = stage.instance("running")
    one = "storage_filling"
    for percent, a_day, severity, times in (
        (50, 5, None, 0),  # in ten days
        (50, 8, "warning", 1),  # in six
        (50, 6, "warning", 1),  # in eight: neither soon nor over
        (85, 8, "critical", 2),  # within two days
    ):
        fills(stage, instance, percent, a_day)
        look(stage, "alerts.forecast")
        assert seen(stage) == ([(one, severity, times, False)] if severity else [])
    (alert,) = alerts(stage)
    assert alert.title == f"the storage of {instance.name} will be full in 1 day"
    assert alert.reason.startswith("0.85 GB of 1 GB are used, and 0.08 GB are added a day")
    assert told(stage) == [(RAISED, one, "warning"), (RAISED, one, "critical")]
    fills(stage, instance, 50, 0)
    look(stage, "alerts.forecast")
    assert seen(stage) == [(one, "critical", 2, True)]


def test_storage_that_is_nearly_full_is_critical_however_slowly_it_fills(stage: Stage) -> None:
    instance = stage.instance("running")
    for percent, raised, over in ((94, 0, False), (96, 1, False), (91, 1, False), (89, 1, True)):
        measured(stage, instance, 0, storage_bytes=percent * GB // 100)
        look(stage, "alerts.forecast")
        expected = [("storage_filling", "critical", 1, over)] if raised else []
        assert seen(stage) == expected, percent
    assert alerts(stage)[0].title == f"the storage of {instance.name} is 96 % full"


def test_of_an_instance_that_nobody_measures_nothing_is_said_to_be_over(stage: Stage) -> None:
    instance = stage.instance("running")
    measured(stage, instance, 0, storage_bytes=97 * GB // 100)
    look(stage, "alerts.forecast")
    stage.pass_time(10 * 86_400)
    look(stage, "alerts.forecast")
    assert seen(stage) == [("storage_filling", "critical", 1, False)]
    measured(stage, instance, 0, storage_bytes=GB // 10)
    look(stage, "alerts.forecast")
    assert seen(stage) == [("storage_filling", "critical", 1, True)]


def test_an_acknowledged_one_comes_back_only_when_it_is_worse(stage: Stage) -> None:
    instance = stage.instance("running")
    fills(stage, instance, 50, 8)
    look(stage, "alerts.forecast")
    with stage.database.write() as db:
        db.get_one(Alert, alerts(stage)[0].id).acknowledge("usr_1", now(db))
    look(stage, "alerts.forecast")
    assert len(alerts(stage)) == 1
    fills(stage, instance, 85, 8)
    look(stage, "alerts.forecast")
    assert [severity for _, severity, _, _ in seen(stage)] == ["warning", "critical"]
    fills(stage, instance, 50, 0)
    look(stage, "alerts.forecast")
    assert all(over for *_, over in seen(stage))


def test_connections_that_stay_near_the_limit_are_told_of(stage: Stage) -> None:
    instance = stage.instance("running")  # of size f0, with 20 connections
    one = "connections_saturated"
    for before, current, severity, times, over in (
        (10, 20, None, 0, False),
        (20, 10, None, 0, False),
        (15, 15, None, 0, False),
        (16, 16, "warning", 1, False),
        (16, 1, "warning", 1, False),
        (14, 14, "warning", 1, False),
        (19, 20, "critical", 2, False),
        (13, 13, "critical", 2, True),
    ):
        measured(stage, instance, 1, connections_max=before)
        measured(stage, instance, 0, connections_max=current)
        look(stage)
        assert seen(stage) == ([(one, severity, times, over)] if severity else []), before


def test_a_single_hour_says_nothing_of_connections(stage: Stage) -> None:
    instance = stage.instance("running")
    measured(stage, instance, 0, connections_max=20)
    look(stage)
    assert seen(stage) == []


def certified(stage: Stage, instance: Instance, hostname: str, **told_of: Any) -> None:
    days = told_of.pop("days")
    with stage.database.write() as db:
        until = now(db) + timedelta(days=days)
        values = {"issued_by": "local", "status": "issued", "status_reason": None, **told_of}
        ids = {"id": identifiers.new("dom_"), "org_id": stage.org_id, "instance_id": instance.id}
        names = {"hostname": hostname, "cname_target": "db.localhost", "status": "verified"}
        certificate = {**values, "not_after": timestamp(until), "retry_at": None}
        db.add(Domain(**ids, **names, certificate=certificate))


FAILED = {"issued_by": "acme", "status": "failed", "status_reason": "the CA refused it"}
IN_ORDER = {"issued_by": "acme", "status": "issued"}


@pytest.mark.parametrize(
    ("told_of", "severity"),
    [
        ({"days": 15.5}, None),
        ({"days": 14.5}, None),
        ({"days": 13.5}, "warning"),
        ({"days": 2.5}, "critical"),
        ({"days": -1}, "critical"),
        ({"days": 20, **FAILED}, "info"),
        ({"days": 80, **FAILED}, "info"),
        ({"days": 90, **FAILED, "issued_by": "local"}, "warning"),
        ({"days": 13.5, **FAILED}, "warning"),
        ({"days": 2.5, **FAILED}, "critical"),
        # It is valid for six days in all.
        ({"days": 2.5, **IN_ORDER}, None),
        ({"days": 0.5, **IN_ORDER}, "critical"),
    ],
    ids=str,
)
def test_a_certificate_near_its_end_is_told_of(
    stage: Stage, told_of: dict[str, Any], severity: str | None
) -> None:
    certified(stage, stage.instance("running"), "db.example.com", **told_of)
    look(stage, "alerts.forecast")
    found = [("certificate_expiring", severity, 1, False)] if severity else []
    assert seen(stage) == found


def test_several_domains_of_an_instance_are_one_alert(stage: Stage) -> None:
    instance = stage.instance("running")
    for number in range(8):
        certified(stage, instance, f"d{number}.example.com", days=10 - number, **FAILED)
    look(stage, "alerts.forecast")
    (alert,) = alerts(stage)
    assert alert.title == f"a certificate of {instance.name} expires in 2 days"
    assert alert.reason == (
        "d7.example.com: the CA refused it; also d6.example.com, d5.example.com, d4.example.com,"
        " d3.example.com and 3 more"
    )
    with stage.database.write() as db:
        for each in db.query(Domain):
            db.delete(each)
    look(stage, "alerts.forecast")
    assert alerts(stage)[0].resolved_at is not None


def test_one_that_cannot_be_raised_holds_up_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stage.instance("running"), stage.instance("running")
    for each in (first, second):
        measured(stage, each, 0, storage_bytes=97 * GB // 100)
    held = alert_evaluation._held

    def failing(db: Any, subject: Any) -> Any:
        if subject.instance_id == first.id:
            raise ValueError("it is not as it must be")
        return held(db, subject)

    monkeypatch.setattr(alert_evaluation, "_held", failing)
    look(stage, "alerts.forecast")
    assert [one.instance_id for one in alerts(stage)] == [second.id]


def test_a_rule_that_fails_holds_up_no_other_and_ends_nothing(stage: Stage) -> None:
    instance = stage.instance("running")
    measured(stage, instance, 1, connections_max=20)
    measured(stage, instance, 0, connections_max=20)
    look(stage)
    is_open = [("connections_saturated", "critical", 1, False)]
    assert seen(stage) == is_open

    def failing(_db: Session, _now: datetime) -> Iterator[AlertFinding]:
        raise ValueError("what it looks at is not as it must be")

    def nothing(_db: Session, _now: datetime) -> Iterator[AlertFinding]:
        return iter(())

    rules = [AlertRule(CONNECTIONS, failing), AlertRule("storage_filling", nothing)]
    with stage.database.write() as db:
        raise_(db, db.get_one(Instance, instance.id), "storage_filling", "critical", "x", "y")
    alert_evaluation.evaluate_all(stage.database, rules)
    assert seen(stage) == [*is_open, ("storage_filling", "critical", 1, True)]


def test_what_happens_again_while_a_rule_looks_is_not_over(stage: Stage) -> None:
    instance = stage.instance("running")

    def happens() -> None:
        with stage.database.write() as db:
            raise_(db, db.get_one(Instance, instance.id), CONNECTIONS, "warning", "{name}", "high")

    def sees_nothing(_db: Session, _now: datetime) -> Iterator[AlertFinding]:
        happens()
        return iter(())

    happens()
    rule = AlertRule(CONNECTIONS, sees_nothing)
    alert_evaluation.evaluate_rule(stage.database, rule)
    assert seen(stage) == [(CONNECTIONS, "warning", 2, False)]
    rule = AlertRule(CONNECTIONS, lambda _db, _now: iter(()))
    alert_evaluation.evaluate_rule(stage.database, rule)
    assert seen(stage) == [(CONNECTIONS, "warning", 2, True)]


@pytest.mark.every_database
def test_what_is_raised_while_a_rule_looks_is_not_over(stage: Stage) -> None:
    instance = stage.instance("running")

    def sees_nothing(_db: Session, _now: datetime) -> Iterator[AlertFinding]:
        with stage.database.write() as db:
            raise_(db, db.get_one(Instance, instance.id), CONNECTIONS, "warning", "{name}", "high")
        return iter(())

    alert_evaluation.evaluate_rule(stage.database, AlertRule(CONNECTIONS, sees_nothing))
    assert [over for *_, over in seen(stage)] == [False]
