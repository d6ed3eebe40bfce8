"""Migrations as records: their transitions, one at a time, and by which index they are found."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from contract_tests.storage import tenants
from contract_tests.storage.query_plans import query_plans
from storage.data import migrations
from storage.data.migrations import ENDED, STATUSES, Migration
from storage.database import Database
from storage.errors import RecordNotFound, StateConflict
from storage.instances.instances import Instance

NOW: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)
OPEN: Final = [status for status in STATUSES if status not in ENDED]
TOLD: Final[dict[str, Any]] = {
    "reason": None,
    "source_received_at": None,
    "preflight": None,
    "progress": None,
    "verification": None,
    "way_back_until": None,
}


def made(status: str, **values: Any) -> Migration:
    return Migration(status=status, mode="copy_and_sync", **values)


@pytest.mark.parametrize("status", STATUSES)
def test_what_is_unfinished_can_be_cancelled(status: str) -> None:
    migration = made(status, status_reason="why")
    if status in ENDED:
        with pytest.raises(StateConflict, match=f"cannot cancel a migration that is {status}"):
            migration.cancel()
        assert (migration.status, migration.status_reason) == (status, "why")
    else:
        migration.cancel()
        assert migration.status == "cancelling"


@pytest.mark.parametrize("status", STATUSES)
def test_what_syncs_can_be_cut_over(status: str) -> None:
    migration = made(status)
    if status == "syncing":
        migration.cut_over(60, NOW)
        assert (migration.status, migration.cutover_at) == ("cutting_over", NOW)
        migration.cutover_failed("why")
        assert (migration.status, migration.status_reason) == ("syncing", "why")
        assert (migration.keep_way_back_s, migration.cutover_at) == (None, None)
        return
    with pytest.raises(StateConflict, match=f"cannot cut over a migration that is {status}"):
        migration.cut_over(60, NOW)
    assert (migration.status, migration.cutover_at) == (status, None)


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("told", STATUSES)
def test_the_cell_is_followed_until_it_ends(status: str, told: str) -> None:
    migration = made(status)
    migration.was_observed({**TOLD, "status": told, "reason": "why"}, NOW)
    if status in ENDED or (status == "cancelling" and told not in ENDED):
        assert (migration.status, migration.completed_at) == (status, None)
    else:
        assert migration.status == told
        assert migration.status_reason == "why"
        assert migration.completed_at == (NOW if told in ENDED else None)


@pytest.mark.parametrize("told", OPEN)
def test_a_cutover_that_was_asked_for_is_not_taken_back_by_what_was_before(told: str) -> None:
    migration = made("syncing")
    migration.cut_over(0, NOW)
    migration.was_observed({**TOLD, "status": told}, NOW)
    before = {"awaiting_source", "preflight", "copying", "syncing"}
    assert migration.status == ("cutting_over" if told in before else told)


@pytest.mark.parametrize("heard", ["cutting_over", "verifying"])
def test_a_cutover_that_the_cell_could_not_make_is_taken_back(heard: str) -> None:
    migration = made("syncing")
    migration.cut_over(60, NOW)
    migration.was_observed({**TOLD, "status": heard}, NOW)
    migration.was_observed({**TOLD, "status": "syncing", "reason": "why"}, NOW)
    assert (migration.status, migration.status_reason) == ("syncing", "why")
    migration.cut_over(0, NOW)
    assert (migration.keep_way_back_s, migration.cutover_at) == (0, NOW)


def test_what_is_told_of_a_way_back_is_kept_until_it_has_ended() -> None:
    migration = made("completed", status_reason=None, way_back_until=NOW)
    until = "2026-11-26T12:00:00.000Z"
    progress = {"lag_bytes": 17}
    told = {**TOLD, "status": "completed", "way_back_until": until, "progress": progress}
    migration.was_observed({**told, "reason": "held up"}, NOW)
    assert (migration.status_reason, migration.progress) == ("held up", progress)
    migration.was_observed({**TOLD, "status": "completed", "reason": "ended"}, NOW)
    assert (migration.status_reason, migration.progress) == ("ended", progress)
    assert (migration.status, migration.way_back_until) == ("completed", None)
    migration.was_observed({**TOLD, "status": "completed", "reason": "later"}, NOW)
    assert migration.status_reason == "ended"


def test_what_is_known_is_not_forgotten_by_an_answer_without_it() -> None:
    migration = made("copying", progress={"bytes_done": 1})
    migration.was_observed({**TOLD, "status": "copying"}, NOW)
    assert migration.progress == {"bytes_done": 1}


def test_a_way_back_is_given_up_with_the_migration_that_keeps_it() -> None:
    """It is asked for again and again until the cell has ended it."""
    migration = made("completed", status_reason="why", way_back_until=NOW)
    migration.cancel()
    assert (migration.status, migration.status_reason) == ("completed", "why")
    migration.give_up("the instance is paused")
    assert (migration.status, migration.status_reason) == ("completed", "the instance is paused")
    for status in ("failed", "cancelled"):
        with pytest.raises(StateConflict):
            made(status, way_back_until=NOW).cancel()


def test_what_is_given_up_is_cancelled_and_says_why() -> None:
    migration = made("copying", status_reason="held up")
    migration.give_up("the instance is gone")
    assert (migration.status, migration.status_reason) == ("cancelling", "the instance is gone")
    migration.cancel()
    assert migration.status_reason == "the instance is gone", "once more changes nothing"
    asked = made("copying", status_reason="held up")
    asked.cancel()
    assert (asked.status, asked.status_reason) == ("cancelling", None)


@pytest.mark.parametrize("status", STATUSES)
def test_a_source_is_sent_while_it_is_awaited(status: str) -> None:
    if status == "awaiting_source":
        made(status).check_awaits_source()
        return
    with pytest.raises(StateConflict) as refused:
        made(status).check_awaits_source()
    assert refused.value.detail == (
        f"cannot send the source of a migration that is {status}; only while it is awaiting_source"
    )


@pytest.mark.parametrize(
    ("status", "mode", "hint"),
    [
        ("copying", "copy_and_sync", "; wait until it is syncing"),
        ("verifying", "copy_and_sync", ""),
        ("completed", "copy_and_sync", ""),
        ("copying", "copy", ": without sync it needs no cutover"),
        ("completed", "copy", ": without sync it needs no cutover"),
    ],
)
def test_who_cannot_cut_over_is_told_what_to_do(status: str, mode: str, hint: str) -> None:
    with pytest.raises(StateConflict) as refused:
        Migration(status=status, mode=mode).cut_over(60, NOW)
    assert refused.value.detail == f"cannot cut over a migration that is {status}{hint}"


@pytest.mark.parametrize("status", STATUSES)
def test_a_migration_ends_once(status: str) -> None:
    failed, cancelled, held_up = (made(status, status_reason="before") for _ in range(3))
    failed.became_failed("why", NOW)
    cancelled.became_cancelled("why", NOW)
    held_up.is_held_up("why")
    found = [
        (each.status, each.status_reason, each.completed_at)
        for each in (failed, cancelled, held_up)
    ]
    if status in ENDED:
        assert found == [(status, "before", None)] * 3
    else:
        assert found == [("failed", "why", NOW), ("cancelled", "why", NOW), (status, "why", None)]


def test_one_that_is_cancelled_for_no_new_reason_keeps_the_one_it_had() -> None:
    migration = made("cancelling", status_reason="the instance is gone")
    migration.became_cancelled(None, NOW)
    assert migration.status_reason == "the instance is gone"
    ended = made("cancelling", status_reason="the instance is gone")
    ended.was_observed({**TOLD, "status": "cancelled"}, NOW)
    assert ended.status_reason == "the instance is gone"


def test_it_began_when_its_cell_first_knew_of_it() -> None:
    migration = made("awaiting_source")
    migration.began(NOW)
    migration.began(NOW + timedelta(1))
    assert migration.started_at == NOW


def test_a_reason_holds_as_long_as_the_step_that_it_is_of() -> None:
    migration = made("preflight", status_reason="held up")
    migration.was_observed({**TOLD, "status": "preflight"}, NOW)
    assert migration.status_reason == "held up"
    migration.was_observed({**TOLD, "status": "preflight", "reason": "slow"}, NOW)
    assert migration.status_reason == "slow"
    migration.was_observed({**TOLD, "status": "copying"}, NOW)
    assert migration.status_reason is None


def test_all_that_the_cell_tells_is_kept() -> None:
    migration = made("copying", progress={"bytes_done": 1}, verification={"rows": 1})
    told = {"preflight": {"tables": 2}, "progress": {"bytes_done": 2}, "verification": {"rows": 1}}
    received = "2026-11-26T11:00:00.000Z"
    migration.was_observed(
        {**TOLD, **told, "status": "copying", "source_received_at": received}, NOW
    )
    assert {name: getattr(migration, name) for name in told} == told
    assert migration.source_received_at == NOW - timedelta(hours=1)


def one(db: Any, instance: Instance) -> Migration:
    return migrations.request(
        *(db, instance),
        source={"kind": "upload"},
        mode="copy",
        dry_run=False,
        requested_by=None,
    )


def test_the_database_allows_one_at_a_time(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        first = one(db, instance)
        first.became_failed("why", NOW)
        second = one(db, instance)
        assert migrations.unfinished(db, instance) is second
        with pytest.raises(StateConflict, match=f"pause an instance .*{second.id}"):
            migrations.check_none(db, instance, "pause")
    said = "a migration is being made into the instance"
    with pytest.raises(StateConflict, match=said), database.write() as db:
        one(db, instance)


def test_what_is_found_is_the_instances_own(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        instance, other = (tenants.instance(db, tenant) for _ in range(2))
        mine = one(db, instance)
        assert migrations.fetch(db, instance, mine.id) is mine
        with pytest.raises(RecordNotFound):
            migrations.fetch(db, other, mine.id)
        assert migrations.watched_cells(db) == [instance.cell_id]
        (found,) = migrations.watched(db, instance.cell_id, after="", limit=10)
        assert found.id == mine.id
        assert migrations.watched(db, instance.cell_id, after=mine.id, limit=10) == []
        mine.became_cancelled(None, NOW)
        db.flush()
        assert migrations.watched_cells(db) == []
        mine.way_back_until = NOW
        db.flush()
        assert migrations.watched_cells(db) == [instance.cell_id]
        instance.desired_status = "deleted"
        db.flush()
        assert migrations.watched_cells(db) == []
        migrations.forget(db, instance)
        assert migrations.page(db, instance, limit=5, after=None).items == []


def test_no_query_reads_them_all(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        with query_plans(db) as plans:
            migrations.unfinished(db, instance)
            migrations.page(db, instance, limit=5, after=None)
            migrations.page_of_org(
                *(db, instance.org_id), scope=None, limit=5, after=None, status=None
            )
            migrations.watched(db, instance.cell_id, after="", limit=5)
            migrations.watched_cells(db)
    of_migrations = [step for step in plans if "migrations" in step]
    assert all("INDEX" in step for step in of_migrations), of_migrations
