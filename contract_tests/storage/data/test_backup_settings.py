"""Backup settings as records: what was chosen, and all that a schedule is told of an instance."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from contract_tests.storage.data.test_backups import TOLD, kept
from storage.access import organizations
from storage.catalogue import cells
from storage.data import backup_copies, backup_settings, backups, recovery_windows
from storage.data.backup_settings import BackupSettings
from storage.database import Database
from storage.instances.instances import Instance

AT: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)
CHOSEN: Final[dict[str, Any]] = {
    "frequency": "weekly",
    "retention_days": 9,
    "window_start": "03:00",
    "continuous_archiving": True,
    "copy_target": "second_store",
}


def choose(db: Session, instance: Instance, **values: Any) -> BackupSettings:
    settings = backup_settings.of_instance(db, instance)
    settings.change(values, "usr_1", AT)
    db.add(settings)
    db.flush()
    return settings


def test_what_is_chosen_is_kept_and_the_rest_left(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        choose(db, instance, **CHOSEN)
    with database.write() as db:
        settings = backup_settings.of_instance(db, instance)
        assert (settings.org_id, settings.instance_id) == (instance.org_id, instance.id)
        assert {name: getattr(settings, name) for name in CHOSEN} == CHOSEN
        assert (settings.updated_by, settings.updated_at) == ("usr_1", AT)
        settings.change({"retention_days": None}, None, AT + timedelta(1))
        changed = {name: getattr(settings, name) for name in CHOSEN}
        assert changed == {**CHOSEN, "retention_days": None}
        assert (settings.updated_by, settings.updated_at) == (None, AT + timedelta(1))


def test_where_nobody_chose_the_settings_are_as_old_as_the_instance(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        db.refresh(instance)
        settings = backup_settings.of_instance(db, instance)
        assert {getattr(settings, name) for name in CHOSEN} == {None}
        assert settings.updated_at == instance.created_at
        db.flush()
        assert db.get(BackupSettings, instance.id) is None, "they are in no table yet"


def test_a_schedule_is_told_all_that_is_known_of_an_instance(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        organizations.fetch(db, tenant.org_id).plan = "team"
        cells.fetch(db, tenant.cell_id).has_second_store = True
        instance = tenants.instance(db, tenant, status="running", ready_at=AT)
        choose(db, instance, **CHOSEN)
        window = recovery_windows.of_instance(db, instance)
        window.is_wanted, window.needs_base, window.base_asked_at = True, False, AT
        copies = backup_copies.of_instance(db, instance)
        copies.is_wanted = True
        db.add_all([window, copies])
        for days in (2, 3):
            made = kept(db, instance, slot=AT - timedelta(days=days))
            made.started_at = made.completed_at = AT - timedelta(days=days)
        backups.request(db, instance, "scheduled", slot=AT - timedelta(days=1)).status = "failed"
        by_hand = kept(db, instance, "manual")
        by_hand.started_at, by_hand.completed_at = AT, AT - timedelta(days=9)
        db.flush()
        db.refresh(instance)
        (found,) = backup_settings.scheduled(db, ["running"], after="", limit=9)
        told = asdict(found)
    assert told == {
        "org_id": tenant.org_id,
        "instance_id": instance.id,
        "plan": "team",
        "status": "running",
        "ready_at": AT,
        "updated_at": instance.updated_at,
        **CHOSEN,
        "engine": "duckdb",
        "is_archived": True,
        "needs_base": False,
        "base_asked_at": AT,
        "has_second_store": True,
        "is_copied": True,
        "newest_slot": AT - timedelta(days=1),
        "newest_data": AT,
        "oldest_kept": AT - timedelta(days=3),
    }


def test_a_schedule_is_told_of_wanted_instances_with_data_one_after_another(
    database: Database,
) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        ready: dict[str, Any] = {"status": "running", "ready_at": AT}
        first = tenants.instance(db, tenant, **ready)
        second = tenants.instance(db, other, **{**ready, "status": "paused"})
        third = tenants.instance(db, tenant, **ready)
        tenants.instance(db, tenant, status="running")
        tenants.instance(db, tenant, **{**ready, "status": "failed"})
        tenants.instance(db, tenant, **ready, desired_status="deleted")
        tenants.instance(db, tenant, status="erased", ready_at=AT)
        choose(db, second, frequency="weekly")
        for status_of, told in ((recovery_windows, "waiting"), (backup_copies, "copying")):
            record: Any = status_of.of_instance(db, third)
            record.is_wanted, record.status = True, told
            db.add(record)
        kept(db, third, slot=AT)
        db.flush()

        def found(after: str = "", limit: int = 9) -> list[str]:
            rows = backup_settings.scheduled(
                db, ["running", "paused", "erased"], after=after, limit=limit
            )
            return [each.instance_id for each in rows]

        assert found() == [first.id, second.id, third.id]
        assert found(limit=2) == [first.id, second.id]
        assert found(after=first.id) == [second.id, third.id]
        one, two, three = backup_settings.scheduled(db, ["running", "paused"], after="", limit=9)
        assert [each.frequency for each in (one, two, three)] == [None, "weekly", None]
        assert [each.is_archived for each in (one, two, three)] == [None, None, True]
        assert [each.is_copied for each in (one, two, three)] == [None, None, True]
        assert [each.newest_slot for each in (one, two, three)] == [None, None, AT]
        began = datetime.fromisoformat(TOLD["started_at"])
        assert [each.newest_data for each in (one, two, three)] == [None, None, began]


def test_they_are_forgotten_with_their_instance_alone(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        own, beside = tenants.instance(db, tenant), tenants.instance(db, tenant)
        for each in (own, beside):
            choose(db, each, frequency="weekly")
        backup_settings.forget(db, own)
        db.expire_all()
        assert db.get(BackupSettings, own.id) is None
        assert db.get(BackupSettings, beside.id) is not None
