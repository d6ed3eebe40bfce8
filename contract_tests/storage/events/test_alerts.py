"""Alerts as they are kept: for whom, for how long, and in which order."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from storage.access.scopes import NOWHERE, Scope
from storage.access.teams import Team, everyone_of
from storage.database import Database
from storage.errors import RecordNotFound
from storage.events import alerts
from storage.events.alerts import Alert
from storage.instances.instances import Instance

AT: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)


def raised(db: Session, instance: Instance, kind: str = "kind", severity: str = "info") -> Alert:
    made = alerts.raise_(db, instance, kind, severity, title="title", reason="reason")
    db.flush()
    return made


def test_what_is_raised_is_kept(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        db.add(Team(id="team_two", org_id=tenant.org_id, name="Two", slug="two"))
        db.flush()
        instance = tenants.instance(db, tenant, team_id="team_two")
        now = database.now(db)
        made = alerts.raise_(db, instance, "disk_full", "critical", title="Full", reason="No room")
    with database.read() as db:
        found = alerts.fetch(db, tenant.org_id, made.id)
        assert found.id.startswith("alert_")
        assert (found.org_id, found.team_id) == (tenant.org_id, "team_two")
        assert (found.instance_id, found.kind) == (instance.id, "disk_full")
        assert (found.severity, found.title, found.reason) == ("critical", "Full", "No room")
        assert (found.occurrences, found.resolved_at, found.acknowledged_at) == (1, None, None)
        assert now <= found.last_at <= database.now(db)


def test_an_alert_of_a_team_is_none_of_its_instances(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        team = db.get_one(Team, everyone_of(tenant.org_id))
        other = Team(id="team_two", org_id=tenant.org_id, name="Two", slug="two")
        db.add(other)
        instance = tenants.instance(db, tenant)
        of_team, of_other, of_instance = (
            alerts.raise_(db, each, "kind", "info", title="t", reason="r")
            for each in (team, other, instance)
        )
        assert (of_team.team_id, of_team.instance_id) == (team.id, None)
        assert alerts.raise_(db, team, "kind", "warning", title="t", reason="r") is of_team
        assert [one.occurrences for one in (of_team, of_other, of_instance)] == [2, 1, 1]
        alerts.resolve(db, team, ["kind"])
        for each in (of_team, of_other, of_instance):
            db.refresh(each)
        assert of_team.resolved_at is not None
        assert (of_other.resolved_at, of_instance.resolved_at) == (None, None)
        alerts.resolve(db, instance, ["kind"])
        db.refresh(of_other)
        assert of_other.resolved_at is None
        alerts.forget_team(db, other)
        left = {one.id for one in db.scalars(select(Alert))}
        assert left == {of_team.id, of_instance.id}
        alerts.forget(db, instance)
        assert {one.id for one in db.scalars(select(Alert))} == {of_team.id}


@pytest.mark.parametrize(
    ("before", "again", "then"),
    [
        ("info", "critical", "critical"),
        ("critical", "info", "critical"),
        ("warning", "critical", "critical"),
        ("warning", "info", "warning"),
        ("info", "warning", "warning"),
    ],
)
def test_what_happens_again_is_one_alert_of_the_worst_severity(
    database: Database, before: str, again: str, then: str
) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        first = raised(db, instance, "disk_full", before)
        first.last_at = AT
        raised(db, instance, "another")
        second = alerts.raise_(db, instance, "disk_full", again, title="Again", reason="New")
        assert second is first
        assert (first.severity, first.title, first.reason) == (then, "Again", "New")
        assert first.occurrences == 2
        assert first.last_at > AT
        raised(db, instance, "disk_full")
        assert first.occurrences == 3


def test_it_is_another_alert_once_somebody_acknowledged_it_or_it_is_over(
    database: Database,
) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        first = raised(db, instance)
        first.acknowledge("usr_1", AT)
        first.acknowledge("usr_2", AT + timedelta(1))
        assert (first.acknowledged_by, first.acknowledged_at) == ("usr_1", AT)
        second = raised(db, instance)
        assert second is not first
        alerts.resolve(db, instance, ["kind"])
        assert raised(db, instance) not in (first, second)
        assert [first.occurrences, second.occurrences] == [1, 1]


def test_what_is_over_was_so_since_it_was_first_said(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        before, after = raised(db, instance), raised(db, instance, "another")
        goes_on = raised(db, instance, "third")
        before.resolved_at = AT
        alerts.resolve(db, instance, ["kind", "another"])
        db.expire_all()
        assert (before.resolved_at, goes_on.resolved_at) == (AT, None)
        assert after.resolved_at is not None
        assert abs(after.resolved_at - database.now(db)) < timedelta(minutes=1)


def test_an_alert_is_found_in_its_organization_alone(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        made = raised(db, tenants.instance(db, tenant))
        assert alerts.fetch(db, tenant.org_id, made.id) is made
        for org_id, alert_id in ((other.org_id, made.id), (tenant.org_id, "alert_none")):
            with pytest.raises(RecordNotFound, match=r"^alert not found$"):
                alerts.fetch(db, org_id, alert_id)


def test_alerts_are_listed_by_what_is_asked_of_them(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        db.add(Team(id="team_two", org_id=tenant.org_id, name="Two", slug="two"))
        db.flush()
        everyones = tenants.instance(db, tenant)
        of_two = tenants.instance(db, tenant, team_id="team_two")
        info, warning = raised(db, everyones).id, raised(db, everyones, "b", "warning").id
        critical = raised(db, of_two, "c", "critical")
        critical.acknowledge("usr_1", AT)
        raised(db, tenants.instance(db, other))
        worst = critical.id

    with database.read() as db:

        def found(**asked: Any) -> list[str]:
            every = {"scope": None, "severities": alerts.SEVERITIES, "with_acknowledged": True}
            page = alerts.page(db, tenant.org_id, **{**every, "limit": 9, "after": None, **asked})
            return [each.id for each in page.items]

        assert found() == [worst, warning, info]
        assert found(limit=2) == [worst, warning]
        assert found(after=worst) == [warning, info]
        assert found(with_acknowledged=False) == [warning, info]
        assert found(severities=["info", "critical"]) == [worst, info]
        assert found(severities=[]) == []
        assert found(scope=Scope(frozenset({"team_two"}))) == [worst]
        assert found(scope=Scope(frozenset({everyone_of(tenant.org_id)}))) == [warning, info]
        assert found(scope=NOWHERE) == []


def test_the_oldest_are_forgotten_first_and_so_many_at_once(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        for kind in ("one", "two", "three"):
            alerts.raise_(db, instance, kind, "warning", title=kind, reason="why")
        now = database.now(db)
        assert alerts.forget_old(db, now - timedelta(minutes=1), 9) == 0
        assert alerts.forget_old(db, now + timedelta(minutes=1), 2) == 2
        kept = alerts.page(
            db,
            instance.org_id,
            scope=None,
            severities=alerts.SEVERITIES,
            with_acknowledged=True,
            limit=9,
            after=None,
        )
        assert [one.kind for one in kept.items] == ["three"]


def test_another_instances_are_left_alone(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        one, other = tenants.instance(db, tenant), tenants.instance(db, tenant)
        raised = [
            alerts.raise_(db, each, "kind", "info", title="t", reason="r") for each in (one, other)
        ]
        alerts.resolve(db, one, ["another kind"])
        alerts.resolve(db, one, ["kind"])
    with database.write() as db:
        kept = [db.get_one(alerts.Alert, each.id) for each in raised]
        assert [each.resolved_at is None for each in kept] == [False, True]
        alerts.forget(db, one)
        assert db.get(alerts.Alert, raised[0].id) is None
        assert db.get(alerts.Alert, raised[1].id) is not None


def test_severities_that_are_no_less() -> None:
    assert alerts.at_least("info") == ("info", "warning", "critical")
    assert alerts.at_least("warning") == ("warning", "critical")
    assert alerts.at_least("critical") == ("critical",)
