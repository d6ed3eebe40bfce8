"""Copies of backups as records: what a cell tells of the second store, and which backups it has."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from contract_tests.storage import tenants
from contract_tests.storage.data.test_backups import kept
from storage.data import backup_copies, backups
from storage.data.backup_copies import CopyStatus
from storage.database import Database

AT: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)
NEWEST: Final = "2026-11-26T11:00:00.000Z"
TOLD: Final[dict[str, Any]] = {
    "wanted": True,
    "status": "late",
    "reason": "the second store does not respond",
    "waiting": 2,
    "copied": 5,
    "newest_at": NEWEST,
    "restorable_until": "2026-11-26T10:00:00.000Z",
}


def test_what_a_cell_tells_is_kept_with_the_moment(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        status = backup_copies.of_instance(db, instance)
        status.was_told(TOLD, AT)
        db.add(status)
    with database.read() as db:
        found = backup_copies.of_instance(db, instance)
        assert (found.org_id, found.instance_id) == (instance.org_id, instance.id)
        assert (found.is_wanted, found.status, found.reason) == (True, "late", TOLD["reason"])
        assert (found.waiting, found.copied) == (2, 5)
        assert found.newest_at == AT - timedelta(hours=1)
        assert found.restorable_until == AT - timedelta(hours=2)
        assert (found.is_interrupted, found.seen_at) == (False, AT)
        never = CopyStatus()
        never.was_told({**TOLD, "newest_at": None, "restorable_until": None}, AT)
        assert (never.newest_at, never.restorable_until) == (None, None)


def test_where_nothing_was_told_there_are_no_copies(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        status = backup_copies.of_instance(db, instance)
        assert (status.is_wanted, status.status, status.is_interrupted) == (False, "off", False)
        assert (status.waiting, status.copied, status.newest_at) == (0, 0, None)
        db.flush()
        assert db.get(CopyStatus, instance.id) is None, "it is in no table yet"


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({}, False),
        ({"waiting": 9, "status": "current", "reason": None}, False),
        ({"copied": 4}, True),
        ({"newest_at": "2026-11-26T11:00:00.001Z"}, True),
        ({"newest_at": None}, True),
    ],
)
def test_other_copies_are_seen_by_how_many_and_how_new(
    changed: dict[str, Any], differs: bool
) -> None:
    status = CopyStatus()
    status.was_told(TOLD, AT)
    assert status.has_other_copies({**TOLD, **changed}) is differs


def test_backups_that_are_copied_have_the_moment_and_others_none(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        instance, beside = tenants.instance(db, tenant), tenants.instance(db, tenant)
        stays, goes, comes = (kept(db, instance) for _ in range(3))
        running = backups.request(db, instance, "manual")
        others = kept(db, beside)
        stays.copied_at = goes.copied_at = others.copied_at = AT
        told = dict.fromkeys((stays.id, comes.id, running.id), "2026-11-26T12:00:00.000Z")
        backup_copies.note_copied(db, instance, told)
        copied = [each.copied_at for each in (stays, goes, comes, running, others)]
        assert copied == [AT, None, AT, None, AT]
        comes.became_dropped(AT)
        assert comes.copied_at is None


@pytest.mark.parametrize("gone", [0, 1])
def test_they_are_forgotten_with_their_instance_alone(database: Database, gone: int) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        both = [tenants.instance(db, tenant) for _ in range(2)]
        for each in both:
            db.add(backup_copies.of_instance(db, each))
        db.flush()
        backup_copies.forget(db, both[gone])
        left = backup_copies.of_cell(db, tenant.cell_id)
        assert left.keys() == {both[1 - gone].id}
