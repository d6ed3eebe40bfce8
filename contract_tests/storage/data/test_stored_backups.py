"""Backups as they are stored: what they take, which are found, and those found in the store."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from contract_tests.storage import tenants
from contract_tests.storage.data.test_backups import TOLD, kept
from storage.access import organizations
from storage.data import backups
from storage.data.backups import STATUSES, Backup
from storage.database import Database
from storage.errors import RecordNotFound, StateConflict

AT: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)
FOUND: Final[dict[str, Any]] = {
    **TOLD,
    "backup_id": "bkp_found",
    "kind": "manual",
    "engine": "postgresql",
    "engine_version": "17",
    "method": "incremental",
    "parent_id": "bkp_full",
    "wal_chain_id": "chain",
    "consistent_at": "2026-11-25T02:00:00.500Z",
}
INCREMENTAL: Final = (
    "cannot download an incremental backup, which has only what has changed: download a full one,"
    " such as a manual backup, or restore it into a new instance"
)


def test_a_backup_that_is_found_in_the_store_is_taken_over(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        instance, other = tenants.instance(db, tenant), tenants.instance(db, tenant)
        taken = backups.take_over(db, instance, FOUND)
        assert taken.status == "completed"
        for each in (instance, other):
            with pytest.raises(StateConflict, match=r"^the cell lists a backup that is another"):
                backups.take_over(db, each, FOUND)
    with database.read() as db:
        found = backups.fetch(db, instance, "bkp_found")
        assert (found.org_id, found.instance_id) == (tenant.org_id, instance.id)
        assert (found.kind, found.engine, found.engine_version) == ("manual", "postgresql", "17")
        # What it was ordered with then is not known any more.
        assert (found.size, found.storage_bytes) == (instance.size, instance.storage_bytes)
        told = ("size_bytes", "stored_bytes", "sha256", "extensions", "verification")
        assert {name: getattr(found, name) for name in told} == {name: TOLD[name] for name in told}
        assert (found.method, found.parent_id) == ("incremental", "bkp_full")
        assert found.wal_chain_id == "chain"
        begun = datetime(2026, 11, 25, 2, tzinfo=UTC)
        assert found.started_at == begun
        assert found.completed_at == begun + timedelta(milliseconds=1123)
        assert found.consistent_at == begun + timedelta(milliseconds=500)


def test_what_is_asked_for_is_the_instance_as_it_is_ordered(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db), size="s1", engine_version="1.4")
        made = backups.request(db, instance, "manual", label="before", requested_by="usr_1")
        assert made.status == "pending"
        assert made.id.startswith("bkp_")
    with database.read() as db:
        found = backups.fetch(db, instance, made.id)
        assert (found.org_id, found.instance_id) == (instance.org_id, instance.id)
        assert (found.kind, found.status, found.label) == ("manual", "pending", "before")
        assert (found.engine, found.engine_version) == (instance.engine, "1.4")
        assert (found.size, found.storage_bytes) == ("s1", instance.storage_bytes)
        assert (found.requested_by, found.slot) == ("usr_1", None)
        with pytest.raises(RecordNotFound, match=r"^backup not found$"):
            backups.fetch(db, instance, "bkp_none")


@pytest.mark.parametrize("status", STATUSES)
def test_what_a_backup_waits_for_is_told_until_it_has_ended(status: str) -> None:
    backup = Backup(status=status, status_reason="before")
    backup.is_held_up("the store does not respond")
    waits = status in {"pending", "running"}
    assert backup.status_reason == ("the store does not respond" if waits else "before")


def test_why_a_backup_ended_is_told_until_it_goes_on() -> None:
    failed, expired, deleted, begun = (Backup(kind="manual", status="pending") for _ in range(4))
    failed.became_failed("the disk is full")
    expired.became_completed(TOLD)
    expired.expire("its retention is over")
    deleted.became_completed(TOLD)
    deleted.delete()
    begun.status_reason = "held up"
    begun.begin()
    reasons = [each.status_reason for each in (failed, expired, deleted, begun)]
    asked = "it was deleted by request"
    assert reasons == ["the disk is full", "its retention is over", asked, None]


def test_what_cannot_be_done_with_a_backup_is_told_with_the_reason() -> None:
    refusals = [
        (Backup(status="running").check_restorable, "cannot restore a backup that is running"),
        (
            Backup(status="failed", status_reason="why").check_downloadable,
            "cannot download a backup that is failed: why",
        ),
        (
            Backup(status="completed", parent_id="bkp_full").check_downloadable,
            INCREMENTAL,
        ),
        (
            Backup(kind="scheduled", status="completed").delete,
            "cannot delete a scheduled backup: it is removed when its retention is over",
        ),
        (Backup(status="failed").begin, "cannot begin a backup that is failed"),
        (
            lambda: Backup(status="failed").became_failed("why"),
            "cannot fail a backup that is failed",
        ),
        (lambda: Backup(status="failed").expire("why"), "cannot expire a backup that is failed"),
        (
            lambda: Backup(status="failed").became_completed(TOLD),
            "cannot complete a backup that is failed",
        ),
        (Backup(kind="manual", status="deleted").delete, "cannot delete a backup that is deleted"),
    ]
    for act, said in refusals:
        with pytest.raises(StateConflict) as refused:
            act()
        assert refused.value.detail == said
    Backup(status="completed").check_downloadable()


def test_what_is_stored_is_that_of_live_instances(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        organizations.fetch(db, other.org_id).plan = "team"
        third, empty = tenants.make(db), tenants.make(db)
        one, two = tenants.instance(db, tenant), tenants.instance(db, tenant)
        gone = tenants.instance(db, tenant, status="deleted", desired_status="deleted")
        theirs = tenants.instance(db, other)
        kept(db, tenants.instance(db, third)).stored_bytes = 7
        assert backups.stored_bytes(db, tenant.org_id) == 0
        for size, instance in enumerate((one, two, gone, theirs), 1):
            kept(db, instance).stored_bytes = 10**size
        kept(db, one).expire("over")
        backups.request(db, one, "manual")
        db.flush()
        stored = {each.instance_id for each in backups.stored(db, tenant.org_id)}
        assert stored == {one.id, two.id}
        assert len(backups.stored(db, tenant.org_id)) == 2
        assert backups.stored_bytes(db, tenant.org_id) == 110
        assert backups.stored_bytes(db, other.org_id) == 10_000
        assert backups.stored_bytes(db, empty.org_id) == 0
        assert sorted(backups.stored_by_org(db)) == sorted(
            [
                (tenant.org_id, "free", 110),
                (other.org_id, "team", 10_000),
                (third.org_id, "free", 7),
            ]
        )


def test_those_of_an_instance_are_found_by_what_they_are(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        instance, beside = tenants.instance(db, tenant), tenants.instance(db, tenant)
        first, second = kept(db, instance), kept(db, instance, "manual")
        earlier = backups.request(db, instance, "pre_change")
        manual, again = (backups.request(db, instance, "manual") for _ in range(2))
        again.begin()
        backups.request(db, instance, "scheduled").became_failed("why")
        theirs = kept(db, beside)
        backups.request(db, beside, "scheduled")
        assert backups.completed(db, instance) == [first, second]
        assert backups.first_open(db, instance, "manual") is manual
        assert backups.first_open(db, instance, "manual", "pre_change") is earlier
        assert backups.first_open(db, instance, "scheduled") is None
        manual.became_failed("why")
        assert backups.first_open(db, instance, "manual") is again
        asked = [second.id, theirs.id, again.id, "bkp_none"]
        assert {each.id for each in backups.by_ids(db, instance, asked)} == {second.id, again.id}
        shown = backups.page(db, instance, limit=9, after=None, kind="manual", status="failed")
        assert shown.items == [manual]


def test_those_that_nobody_makes_are_found_in_all_organizations(database: Database) -> None:
    with database.write() as db:
        made = []
        for status in ("pending", "running", "completed", "failed"):
            instance = tenants.instance(db, tenants.make(db))
            made.append(backups.request(db, instance, "manual"))
            made[-1].status = status
        db.flush()
        late = database.now(db) + timedelta(hours=1)
        assert backups.open_since(db, late, 9) == made[:2]
        assert backups.open_since(db, late, 1) == made[:1]
        db.refresh(made[1])
        made[0].created_at = made[1].created_at - timedelta(hours=1)
        db.flush()
        assert backups.open_since(db, made[1].created_at, 9) == made[:1]


def test_only_so_many_are_dropped_and_forgotten_at_once_the_oldest_first(
    database: Database,
) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        instance, beside = tenants.instance(db, tenant), tenants.instance(db, tenant)
        made = [kept(db, each) for each in (instance, instance, beside)]
        for each in made:
            each.expire("over")
        db.flush()
        now = database.now(db)
        to_drop = backups.instances_to_drop(db, now, 9)
        assert sorted(to_drop) == sorted([(tenant.org_id, instance.id), (tenant.org_id, beside.id)])
        assert len(backups.instances_to_drop(db, now, 1)) == 1
        for each in made:
            each.became_dropped(now)
        db.flush()
        assert backups.forget_old(db, now - timedelta(minutes=1), 9) == 0
        assert backups.forget_old(db, now + timedelta(minutes=1), 2) == 2
        assert backups.page(db, beside, limit=9, after=None, status="deleted").items == [made[2]]
