"""Alerts of organizations, those that differ by their cause, and what is still to be told."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from contract_tests.storage.tenants import Tenant
from storage.access import organizations
from storage.access.organizations import Organization
from storage.access.teams import Team, everyone_of
from storage.database import Database, now
from storage.events import alerts
from storage.events.alerts import Alert, AlertSubject, Concerned

TEXTS = {"title": "t", "reason": "r"}


def raised(db: Session, of: Concerned, severity: str = "warning", cause: str = "") -> Alert:
    made = alerts.raise_(db, of, "kind", severity, **TEXTS, cause=cause)
    db.flush()
    return made


def org_of(db: Session, tenant: Tenant) -> Organization:
    return organizations.fetch(db, tenant.org_id)


def test_those_about_organization_team_and_instance_are_three(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        org, team = org_of(db, tenant), db.get_one(Team, everyone_of(tenant.org_id))
        concerned: list[Concerned] = [org, team, tenants.instance(db, tenant)]
        found = [raised(db, each) for each in concerned]
        strange = raised(db, org_of(db, other))
        assert [raised(db, each) for each in concerned] == found
        assert {one.occurrences for one in found} == {2}
        assert strange.occurrences == 1
        for one, each in zip(found, concerned, strict=True):
            assert one.subject == AlertSubject.of(each)
            assert alerts.times(db, one.subject, "kind") == 2
            assert alerts.resolve(db, each, ["kind"]) == [one]
            assert alerts.resolve(db, each, ["kind"]) == []
            assert alerts.times(db, one.subject, "kind") == 0
        assert (found[0].team_id, found[0].instance_id) == (None, None)
        assert alerts.place(db, found[0]) is None
        assert strange.resolved_at is None


def test_causes_keep_alerts_apart(database: Database) -> None:
    with database.write() as db:
        org = org_of(db, tenants.make(db))
        one, other = raised(db, org, cause="a"), raised(db, org, cause="b")
        assert raised(db, org, "critical", cause="a") is one
        assert (one.severity, one.occurrences, other.occurrences) == ("critical", 2, 1)
        assert alerts.is_open(db, one.subject, "kind", "a", ["critical"])
        assert not alerts.is_open(db, one.subject, "kind", "b", ["critical"])
        assert not alerts.is_open(db, one.subject, "another", "a", ["critical"])
        assert alerts.open_of(db, ["kind"]) == [one, other]
        assert alerts.open_of(db, ["another"]) == []
        assert alerts.resolve(db, org, ["kind"], cause="b") == [other]
        assert alerts.open_of(db, ["kind"]) == [one]
        assert not alerts.is_open(db, one.subject, "kind", "b", ["warning"])


@pytest.mark.parametrize(
    ("severity", "cause", "explains"),
    [
        ("critical", "", True),
        ("critical", "cell", True),
        ("critical", "x", False),
        ("warning", "cell", False),
    ],
)
def test_what_explains_is_critical_and_of_the_same_cell(
    database: Database, severity: str, cause: str, explains: bool
) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        db.add(Team(id="team_two", org_id=tenant.org_id, name="Two", slug="two"))
        db.flush()
        mine, of_two = (
            tenants.instance(db, tenant),
            tenants.instance(db, tenant, team_id="team_two"),
        )
        made = raised(db, db.get_one(Team, mine.team_id), severity, cause)
        found = alerts.explaining(db, mine, ["kind"], "cell")
        assert found is (made if explains else None)
        assert alerts.explaining(db, of_two, ["kind"], "cell") is None
        assert alerts.explaining(db, mine, ["another"], "cell") is None
        alerts.resolve(db, db.get_one(Team, mine.team_id), ["kind"])
        assert alerts.explaining(db, mine, ["kind"], "cell") is None


def test_one_of_another_instance_explains_nothing(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        one, other = tenants.instance(db, tenant), tenants.instance(db, tenant)
        made = raised(db, one, "critical")
        assert alerts.explaining(db, one, ["kind"], "cell") is made
        assert alerts.explaining(db, other, ["kind"], "cell") is None


def test_what_is_due_for_a_letter_is_taken_once(database: Database) -> None:
    with database.write() as db:
        first, second, without = (org_of(db, tenants.make(db)) for _ in range(3))
        made = [raised(db, each, cause=cause) for each in (first, second) for cause in "ab"]
        for one in made:
            one.is_mail_due = True
        raised(db, without)
        moment = now(db)
        second.alerts_mailed_at = moment
        db.flush()
        earlier = moment - timedelta(seconds=1)
        assert alerts.orgs_with_mail_due(db, earlier, 9) == [first.id]
        assert alerts.orgs_with_mail_due(db, moment, 9) == sorted([first.id, second.id])
        assert alerts.orgs_with_mail_due(db, moment, 1) == sorted([first.id, second.id])[:1]
        made[2].severity = "critical"
        db.flush()
        assert alerts.orgs_with_mail_due(db, earlier, 9) == sorted([first.id, second.id])
        second.critical_alerts_mailed_at = moment
        db.flush()
        assert alerts.orgs_with_mail_due(db, earlier, 9) == [first.id]
        assert alerts.take_mail_due(db, first.id) == made[:2]
        assert alerts.take_mail_due(db, first.id) == []
        assert alerts.orgs_with_mail_due(db, moment, 9) == [second.id]


def test_those_that_have_not_happened_for_a_while(database: Database) -> None:
    with database.write() as db:
        org = org_of(db, tenants.make(db))
        made = [raised(db, org, cause=cause) for cause in "abc"]
        made[0].last_at -= timedelta(hours=2)
        made[1].last_at -= timedelta(hours=2)
        db.flush()
        before = now(db) - timedelta(hours=1)
        assert alerts.quiet_since(db, "kind", before, 9) == made[:2]
        assert alerts.quiet_since(db, "kind", before, 1) == made[:1]
        assert alerts.quiet_since(db, "another", before, 9) == []
        alerts.resolve(db, org, ["kind"], cause="a")
        assert alerts.quiet_since(db, "kind", before, 9) == made[1:2]


def test_lists_have_filters_and_may_leave_out_what_is_over(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        instance, org = tenants.instance(db, tenant), org_of(db, tenant)
        of_instance, of_org = raised(db, instance).id, raised(db, org).id
        over = raised(db, org, cause="over").id
        alerts.resolve(db, org, ["kind"], cause="over")

        def found(**asked: Any) -> list[str]:
            every = {"scope": None, "severities": alerts.SEVERITIES, "with_acknowledged": True}
            page = alerts.page(db, tenant.org_id, **{**every, "limit": 9, "after": None, **asked})
            return [each.id for each in page.items]

        assert found() == [over, of_org, of_instance]
        assert found(with_resolved=False) == [of_org, of_instance]
        assert found(kind="kind", instance_id=None) == [over, of_org, of_instance]
        assert found(kind="another") == []
        assert found(instance_id=instance.id) == [of_instance]
