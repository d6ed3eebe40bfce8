"""Alerts as they are kept: for whom, for how long, and in which order."""

from datetime import timedelta

from contract_tests.storage import tenants
from storage.database import Database
from storage.events import alerts


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
            teams=None,
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
