"""Backups and restores as records: their transitions, what is counted, and whose they are."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from sqlalchemy import select

from contract_tests.storage import tenants
from contract_tests.storage.query_plans import query_plans
from storage.access.scopes import NOWHERE, Scope
from storage.data import backup_settings, backups, restores
from storage.data.backups import STATUSES, Backup
from storage.data.restores import Restore
from storage.database import Database, now
from storage.errors import RecordNotFound, StateConflict
from storage.instances.instances import Instance

TOLD: Final[dict[str, Any]] = {
    "engine_version": "1.5",
    "size_bytes": 4096,
    "stored_bytes": 1024,
    "started_at": "2026-11-25T02:00:00.000Z",
    "completed_at": "2026-11-25T02:00:01.123456+00:00",
    "sha256": "0" * 64,
    "extensions": ["vector"],
    "verification": {"method": "restored", "at": "2026-11-25T02:00:01.000Z", "digest": "1"},
}
ALLOWED: Final = {
    "begin": {"pending": "running", "running": "running"},
    "became_completed": {"pending": "completed", "running": "completed"},
    "became_failed": {"pending": "failed", "running": "failed"},
    "expire": {"completed": "deleting"},
    "delete": {"completed": "deleting", "failed": "deleting"},
}
ACTS: Final[dict[str, tuple[Any, ...]]] = {
    "begin": (),
    "became_completed": (TOLD,),
    "became_failed": ("why",),
    "expire": ("why",),
    "delete": (),
}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("verb", ACTS)
def test_a_backup_moves_as_the_table_says(verb: str, status: str) -> None:
    backup = Backup(kind="manual", status=status)
    expected = ALLOWED[verb].get(status)
    if expected is not None:
        getattr(backup, verb)(*ACTS[verb])
        assert backup.status == expected
        return
    with pytest.raises(StateConflict, match=f"a backup that is {status}"):
        getattr(backup, verb)(*ACTS[verb])
    assert backup.status == status


@pytest.mark.parametrize("status", STATUSES)
def test_only_what_is_complete_can_be_restored(status: str) -> None:
    backup = Backup(kind="scheduled", status=status, status_reason="why")
    if status == "completed":
        backup.check_restorable()
        return
    with pytest.raises(StateConflict, match=f"cannot restore a backup that is {status}: why"):
        backup.check_restorable()


@pytest.mark.parametrize("kind", ["scheduled", "pre_change"])
def test_what_nobody_asked_for_is_not_deleted_by_hand(kind: str) -> None:
    with pytest.raises(StateConflict, match=f"cannot delete a {kind} backup"):
        Backup(kind=kind, status="completed").delete()


def test_what_failed_stays_failed_once_nothing_is_left_of_it() -> None:
    failed, unwanted = Backup(status="failed"), Backup(status="deleting")
    for each in (failed, unwanted):
        each.became_dropped(datetime(2026, 1, 1, tzinfo=UTC))
        assert each.dropped_at is not None
    assert (failed.status, unwanted.status) == ("failed", "deleted")


def test_a_restore_ends_once() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    restore = Restore(status="pending")
    restore.begin(at)
    restore.became_failed("why", at)
    restore.became_completed(at + timedelta(1))
    restore.begin(at + timedelta(1))
    assert (restore.status, restore.status_reason, restore.completed_at) == ("failed", "why", at)


def kept(db: Any, instance: Instance, kind: str = "scheduled", **values: Any) -> Backup:
    made = backups.request(db, instance, kind, **values)
    made.begin()
    made.became_completed(TOLD)
    db.flush()
    return made


def test_an_instance_has_one_backup_for_a_slot(database: Database) -> None:
    slot = datetime(2026, 11, 25, 2, tzinfo=UTC)
    with database.write() as db:
        tenant = tenants.make(db)
        first, second = (tenants.instance(db, tenant) for _ in range(2))
        for each in (first, second):
            backups.request(db, each, "scheduled", slot=slot)
            backups.request(db, each, "manual")
            backups.request(db, each, "manual")
    with pytest.raises(StateConflict), database.write() as db:
        backups.request(db, first, "scheduled", slot=slot)


def test_manual_backups_are_counted_until_they_are_gone(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        instance = tenants.instance(db, tenant)
        kept(db, tenants.instance(db, other), "manual")
        for status in STATUSES:
            backups.request(db, instance, "manual").status = status
            backups.request(db, instance, "scheduled").status = status
        db.flush()
        # Neither the failed one nor the deleted one takes any of the store.
        assert backups.count_manual(db, tenant.org_id) == 4


def test_a_backup_is_found_in_its_instance_alone(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        own, sibling = tenants.instance(db, tenant), tenants.instance(db, tenant)
        foreign = tenants.instance(db, other)
        backup = kept(db, own)
        restore = restores.request(db, backup, sibling, "new_instance", None)
        assert backups.fetch(db, own, backup.id) is backup
        for elsewhere in (sibling, foreign):
            with pytest.raises(RecordNotFound):
                backups.fetch(db, elsewhere, backup.id)
        # Of where the data came from, and of where it went to.
        for instance in (own, sibling):
            assert restores.fetch(db, instance, restore.id) is restore
            assert restores.page(db, instance, limit=10, after=None).items == [restore]
        with pytest.raises(RecordNotFound):
            restores.fetch(db, foreign, restore.id)


def test_lists_leave_out_what_was_removed_unless_it_is_asked_for(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        made = {}
        for status in STATUSES:
            made[status] = backups.request(db, instance, "manual")
            made[status].status = status
        db.flush()
        shown = backups.page(db, instance, limit=10, after=None).items
        assert [one.status for one in shown] == [*reversed(STATUSES)][1:]
        gone = backups.page(db, instance, limit=10, after=None, status="deleted").items
        assert gone == [made["deleted"]]
        assert backups.page(db, instance, limit=10, after=None, kind="pre_change").items == []
        first = backups.page(db, instance, limit=2, after=None)
        rest = backups.page(db, instance, limit=10, after=first.next_after)
        assert [*first.items, *rest.items] == shown


def test_what_failed_is_dropped_when_no_cell_is_at_it_any_more(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        instance = tenants.instance(db, tenant)
        failed, unwanted = (backups.request(db, instance, "manual") for _ in range(2))
        failed.status, unwanted.status = "failed", "deleting"
        kept(db, instance)
        db.flush()
        moment = now(db)
        early, late = moment - timedelta(hours=1), moment + timedelta(hours=1)
        db.refresh(failed)
        assert backups.to_drop(db, instance, failed.created_at, 10) == [unwanted.id]
        assert backups.to_drop(db, instance, early, 10) == [unwanted.id]
        assert backups.to_drop(db, instance, late, 10) == [failed.id, unwanted.id]
        assert backups.to_drop(db, instance, late, 1) == [failed.id]
        assert (tenant.org_id, instance.id) in backups.instances_to_drop(db, early, 100)
        unwanted.became_dropped(moment)
        db.flush()
        assert (tenant.org_id, instance.id) not in backups.instances_to_drop(db, early, 100)


def test_what_others_build_on_stays_in_the_store_as_long_as_they_do(database: Database) -> None:
    """Whatever became of it, be it that it failed here and was completed in its cell."""
    with database.write() as db:
        tenant = tenants.make(db)
        instance = tenants.instance(db, tenant)
        full, first, second = (backups.request(db, instance, "scheduled") for _ in range(3))
        full.status = "failed"
        first.became_completed({**TOLD, "method": "incremental", "parent_id": full.id})
        second.became_completed({**TOLD, "method": "incremental", "parent_id": first.id})
        late = now(db) + timedelta(hours=1)
        with pytest.raises(StateConflict, match="incremental"):
            second.check_downloadable()
        first.expire("why")
        db.flush()
        assert backups.to_drop(db, instance, late, 10) == []
        assert (tenant.org_id, instance.id) not in backups.instances_to_drop(db, late, 100)
        second.expire("why")
        db.flush()
        for each in (second, first, full):
            assert (tenant.org_id, instance.id) in backups.instances_to_drop(db, late, 100)
            assert backups.to_drop(db, instance, late, 10) == [each.id]
            each.became_dropped(late)
            db.flush()


def test_nothing_builds_on_what_is_another_instances(database: Database) -> None:
    """Whatever a cell says of it."""
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        own = tenants.instance(db, tenant)
        unwanted = kept(db, own)
        unwanted.expire("over")
        for claiming in (tenants.instance(db, tenant), tenants.instance(db, other)):
            kept(db, claiming).parent_id = unwanted.id
        foreign = backups.request(db, own, "scheduled")
        foreign.org_id, foreign.parent_id = other.org_id, unwanted.id
        db.flush()
        late = now(db) + timedelta(hours=1)
        assert backups.to_drop(db, own, late, 10) == [unwanted.id]
        assert backups.instances_to_drop(db, late, 10) == [(tenant.org_id, own.id)]


def test_with_an_instance_all_of_its_own_is_forgotten(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        own, copy = tenants.instance(db, tenant), tenants.instance(db, tenant)
        into = restores.request(db, kept(db, copy), own, "new_instance", None)
        restores.request(db, kept(db, own), copy, "new_instance", None)
        settings = backup_settings.of_instance(db, own)
        settings.change({"frequency": "weekly"}, None, now(db))
        db.add(settings)
        db.flush()
        for records in (backups, restores, backup_settings):
            records.forget(db, own)
        db.expire_all()
        assert [one.instance_id for one in db.scalars(select(Backup))] == [copy.id]
        # The data that it once got is another's, whose restore this is.
        assert [one.id for one in db.scalars(select(Restore))] == [into.id]
        assert backup_settings.of_instance(db, own).frequency is None


def test_old_records_go_once_nothing_is_left_of_what_they_tell(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        present = kept(db, instance)
        gone = kept(db, instance)
        ended, open_ = (restores.request(db, present, instance, "in_place", None) for _ in "ab")
        gone.expire("over")
        gone.became_dropped(now(db))
        ended.became_completed(now(db))
        db.flush()
        later = now(db) + timedelta(days=1)
        assert backups.forget_old(db, later, 10) == 1
        assert restores.forget_old(db, later, 10) == 1
        assert list(db.scalars(select(Backup.id))) == [present.id]
        assert list(db.scalars(select(Restore.id))) == [open_.id]


def test_health_counts_the_slots_of_a_month_and_of_teams(database: Database) -> None:
    begins, ends = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        instance = tenants.instance(db, tenant)
        kept(db, instance, slot=begins)
        kept(db, instance, slot=begins - timedelta(1)).started_at = begins
        kept(db, instance, slot=begins + timedelta(1)).expire("over")
        backups.request(db, instance, "scheduled", slot=begins + timedelta(2)).status = "failed"
        backups.request(db, instance, "scheduled", slot=begins + timedelta(3))
        kept(db, instance, slot=ends)
        kept(db, instance, "manual")
        theirs = kept(db, tenants.instance(db, other), slot=begins)
        gone = kept(db, instance, "manual")
        gone.expire("over")
        theirs.started_at = gone.started_at = begins - timedelta(2)
        db.flush()
        of_all = backups.ended_between(db, tenant.org_id, begins, ends, scope=None)
        assert of_all == (2, 1, 2)
        own = Scope(frozenset({instance.team_id}))
        assert backups.ended_between(db, tenant.org_id, begins, ends, scope=own) == of_all
        nobodys = NOWHERE
        assert backups.ended_between(db, tenant.org_id, begins, ends, scope=nobodys) == (0, 0, 0)
        oldest = backups.oldest_restorable(db, tenant.org_id, scope=own)
        assert oldest == begins
        assert backups.oldest_restorable(db, tenant.org_id, scope=None) == begins
        assert backups.oldest_restorable(db, other.org_id, scope=None) == theirs.started_at
        assert backups.oldest_restorable(db, tenant.org_id, scope=nobodys) is None


def test_a_schedule_looks_at_no_more_than_the_newest_and_the_oldest(database: Database) -> None:
    """An instance has had thousands of backups, and each minute all instances are looked at."""
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db), status="running", ready_at=now(db))
        first = kept(db, instance, slot=now(db) - timedelta(days=1))
        kept(db, instance, "manual")
        db.refresh(first)
        with query_plans(db) as plans:
            (found,) = backup_settings.scheduled(db, ["running"], after="", limit=10)
            backups.count_manual(db, instance.org_id)
            backups.first_open(db, instance, "manual")
            backups.to_drop(db, instance, now(db), 10)
            restores.needed(db, instance)
        assert (found.newest_slot, found.oldest_kept) == (first.slot, first.completed_at)
        assert found.newest_data == first.started_at
        of_backups = [step for step in plans if "backups" in step]
        assert all(step.startswith("SEARCH") for step in of_backups)
        if database.engine.dialect.name == "sqlite":
            for name in ("completed", "retained", "manual", "open", "to_drop"):
                assert any(f"INDEX ix_backups_{name} " in step for step in of_backups), name
            assert any("INDEX ix_restores_open " in step for step in plans)
