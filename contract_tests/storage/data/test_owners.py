"""Data of an instance is its organization's: who names another's instance finds nothing of it."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from types import ModuleType
from typing import Any, Final

import pytest
from sqlalchemy import event, update
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from contract_tests.storage.data.test_backups import kept
from storage.catalogue import cells
from storage.data import (
    backup_copies,
    backup_settings,
    backups,
    migrations,
    recovery_windows,
    restores,
)
from storage.data.backup_copies import CopyStatus
from storage.data.backup_settings import BackupSettings
from storage.data.backups import Backup
from storage.data.migrations import Migration
from storage.data.recovery_windows import RecoveryWindow
from storage.data.restores import Restore
from storage.database import Database
from storage.errors import RecordNotFound
from storage.events import alerts
from storage.events.alerts import Alert
from storage.instances.instances import Instance

AT: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)


def filled(db: Session, instance: Instance) -> dict[type[Any], str]:
    """An instance with a record of each kind; their keys."""
    backup = kept(db, instance)
    restore = restores.request(db, backup, instance, "in_place", None)
    migration = migrations.request(
        *(db, instance), source={"kind": "upload"}, mode="copy", dry_run=False, requested_by=None
    )
    migration.way_back_until = AT
    backups.request(db, instance, "manual")
    kept(db, instance).expire("over")
    alert = alerts.raise_(db, instance, "kind", "info", title="t", reason="r")
    for records in (backup_copies, backup_settings, recovery_windows):
        db.add(records.of_instance(db, instance))
    db.flush()
    ids = dict.fromkeys((CopyStatus, BackupSettings, RecoveryWindow), instance.id)
    return {
        **ids,
        Backup: backup.id,
        Restore: restore.id,
        Migration: migration.id,
        Alert: alert.id,
    }


def test_nothing_is_found_of_another_organizations_instance(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        instance = tenants.instance(db, tenant)
        ids = filled(db, instance)
        asked: list[Callable[[Instance], Any]] = [
            lambda who: backups.page(db, who, limit=9, after=None).items,
            lambda who: backups.completed(db, who),
            lambda who: backups.first_open(db, who, "manual"),
            lambda who: backups.to_drop(db, who, AT, 9),
            lambda who: backups.by_ids(db, who, [ids[Backup]]),
            lambda who: restores.page(db, who, limit=9, after=None).items,
            lambda who: restores.into(db, who, "in_place"),
            lambda who: restores.needed(db, who),
            lambda who: migrations.page(db, who, limit=9, after=None).items,
            lambda who: migrations.unfinished(db, who),
            lambda who: migrations.way_back(db, who),
        ]
        pretended = Instance(id=instance.id, org_id=other.org_id)
        for number, ask in enumerate(asked):
            assert ask(instance), number
            assert not ask(pretended), number
        fetches: list[tuple[Callable[..., Any], str]] = [
            (backups.fetch, ids[Backup]),
            (restores.fetch, ids[Restore]),
            (migrations.fetch, ids[Migration]),
        ]
        for fetch, key in fetches:
            assert fetch(db, instance, key)
            with pytest.raises(RecordNotFound):
                fetch(db, pretended, key)


def test_nothing_is_forgotten_of_another_organizations_instance(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        instance = tenants.instance(db, tenant)
        ids = filled(db, instance)
        pretended = Instance(id=instance.id, org_id=other.org_id)
        forgetting = (
            *(backups, restores, migrations, backup_copies),
            *(backup_settings, recovery_windows, alerts),
        )
        alerts.resolve(db, pretended, ["kind"])
        again = alerts.raise_(db, pretended, "kind", "info", title="t", reason="r")
        assert again.org_id == other.org_id
        for who, is_left in ((pretended, True), (instance, False)):
            for records in forgetting:
                records.forget(db, who)
            db.expunge_all()
            for kind, key in ids.items():
                assert (db.get(kind, key) is not None) is is_left, kind
            if is_left:
                assert db.get_one(Alert, ids[Alert]).resolved_at is None


def test_what_is_locked_is_read_anew(database: Database) -> None:
    """Whoever holds a record decides by what it is, and not by what it was."""
    with database.write() as db:
        tenant = tenants.make(db)
        instance = tenants.instance(db, tenant)
        ids = filled(db, instance)
        fetches: list[tuple[str, Callable[..., Any]]] = [
            ("label", partial(backups.fetch, db, instance, ids[Backup])),
            ("status_reason", partial(restores.fetch, db, instance, ids[Restore])),
            ("status_reason", partial(migrations.fetch, db, instance, ids[Migration])),
            ("title", partial(alerts.fetch, db, tenant.org_id, ids[Alert])),
        ]
        for column, fetch in fetches:
            known = fetch()
            was, behind = getattr(known, column), update(type(known)).values({column: "changed"})
            db.execute(behind, execution_options={"synchronize_session": False})
            assert getattr(fetch(), column) == was
            assert getattr(fetch(lock=True), column) == "changed"


@pytest.mark.parametrize("find", [migrations.unfinished, migrations.way_back])
def test_a_migration_is_locked_where_that_is_asked_for(
    database: Database, find: Callable[..., Migration | None]
) -> None:
    """On SQLite a transaction that writes excludes all others anyway."""
    asked: list[str] = []

    def listen(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        asked.append(statement)

    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        filled(db, instance)
        event.listen(db.connection(), "before_cursor_execute", listen)
        for lock in (False, True):
            found = find(db, instance, lock=lock)
            assert found is not None
    locks = ["FOR UPDATE" in each for each in asked if "FROM migrations" in each]
    assert locks == [False, database.dialect == "postgresql"]


@pytest.mark.parametrize("kind", [backup_copies, recovery_windows])
def test_those_of_a_cell_are_those_of_its_instances(database: Database, kind: ModuleType) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        here, there, silent = (tenants.instance(db, tenant) for _ in range(3))
        cells.register(db, "cell_a", region="eu", url="", public_url="", instance_domain="")
        there.cell_id = "cell_a"
        for each in (here, there):
            db.add(kind.of_instance(db, each))
        db.flush()
        found = kind.of_cell(db, tenant.cell_id)
        assert {key: one.instance_id for key, one in found.items()} == {here.id: here.id}
        assert silent.id not in found
        assert kind.of_cell(db, "cell_a").keys() == {there.id}
        assert kind.of_cell(db, "cell_other") == {}
