"""Restores as records: what is asked for, which are under way, and what they still need."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from contract_tests.storage import tenants
from contract_tests.storage.data.test_backups import kept
from storage.data import restores
from storage.data.restores import STATUSES, Restore
from storage.database import Database
from storage.errors import RecordNotFound

AT: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)
UNDER_WAY: Final = ("pending", "running")


@pytest.mark.parametrize("status", STATUSES)
def test_only_one_under_way_ends(status: str) -> None:
    begun, completed, failed = (Restore(status=status, status_reason="before") for _ in range(3))
    begun.begin(AT)
    completed.became_completed(AT, from_copy=True)
    failed.became_failed("why", AT)
    assert (begun.status, begun.started_at) == (
        ("running", AT) if status == "pending" else (status, None)
    )
    ended = [(one.status, one.status_reason, one.completed_at) for one in (completed, failed)]
    if status in UNDER_WAY:
        assert ended == [("completed", None, AT), ("failed", "why", AT)]
        assert completed.from_copy is True
    else:
        assert ended == [(status, "before", None)] * 2
        assert completed.from_copy is None


def test_what_is_asked_for_is_kept(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        source, target = tenants.instance(db, tenant), tenants.instance(db, tenant)
        backup = kept(db, source)
        made = restores.request(db, backup, target, "new_instance", "usr_1", at=AT)
        assert made.status == "pending"
        assert made.id.startswith("rst_")
    with database.read() as db:
        found = restores.fetch(db, source, made.id)
        assert (found.org_id, found.instance_id) == (tenant.org_id, source.id)
        assert (found.target_instance_id, found.backup_id) == (target.id, backup.id)
        assert (found.mode, found.status, found.at) == ("new_instance", "pending", AT)
        assert (found.requested_by, found.from_copy) == ("usr_1", None)
        with pytest.raises(RecordNotFound, match=r"^restore not found$"):
            restores.fetch(db, source, "rst_none")


def test_pages_are_newest_first(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        instance, beside = tenants.instance(db, tenant), tenants.instance(db, tenant)
        backup = kept(db, instance)
        made = [restores.request(db, backup, instance, "in_place", None) for _ in range(3)]
        restores.request(db, kept(db, beside), beside, "in_place", None)
        first = restores.page(db, instance, limit=2, after=None)
        rest = restores.page(db, instance, limit=2, after=first.next_after)
        assert [*first.items, *rest.items] == made[::-1]


def test_an_instance_gets_its_data_from_the_last_restore_under_way(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        source, target = tenants.instance(db, tenant), tenants.instance(db, tenant)
        backup = kept(db, source)
        assert restores.into(db, target, "new_instance") is None
        made = [restores.request(db, backup, target, "new_instance", None) for _ in range(3)]
        in_place = restores.request(db, backup, target, "in_place", None)
        made[2].became_failed("why", AT)
        assert restores.into(db, target, "new_instance") is made[1]
        assert restores.into(db, target, "in_place") is in_place
        assert restores.into(db, source, "new_instance") is None
        made[1].became_completed(AT)
        made[0].begin(AT)
        assert restores.into(db, target, "new_instance") is made[0]


def test_backups_are_needed_as_long_as_restores_read_from_them(database: Database) -> None:
    with database.write() as db:
        tenant, foreign = tenants.make(db), tenants.make(db)
        one, two = tenants.instance(db, tenant), tenants.instance(db, tenant)
        theirs = tenants.instance(db, foreign)
        of_one, ended, of_two = kept(db, one), kept(db, one), kept(db, two)
        of_theirs = kept(db, theirs)
        # Two of the same backup, and one into another instance than its own.
        restores.request(db, of_one, one, "in_place", None).begin(AT)
        restores.request(db, of_one, two, "new_instance", None)
        restores.request(db, ended, one, "in_place", None).became_failed("why", AT)
        restores.request(db, of_two, one, "new_instance", None)
        restores.request(db, of_theirs, theirs, "in_place", None)
        db.flush()
        assert restores.needed(db, one) == {of_one.id}
        assert restores.needed(db, two) == {of_two.id}
        assert restores.needed_in(db, tenant.org_id) == {of_one.id, of_two.id}
        assert restores.needed_in(db, foreign.org_id) == {of_theirs.id}


def test_those_that_have_ended_are_forgotten_oldest_first_and_so_many_at_once(
    database: Database,
) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        backup = kept(db, instance)
        made = [restores.request(db, backup, instance, "in_place", None) for _ in range(4)]
        for restore in made[:3]:
            restore.became_completed(AT)
        db.flush()
        now = database.now(db)
        assert restores.forget_old(db, now - timedelta(minutes=1), 9) == 0
        assert restores.forget_old(db, now + timedelta(minutes=1), 2) == 2
        assert restores.page(db, instance, limit=9, after=None).items == [made[3], made[2]]
        assert restores.forget_old(db, now + timedelta(minutes=1), 9) == 1
