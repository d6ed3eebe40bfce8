"""Migrations as they are listed, watched and forgotten: whose they are, and in which order."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from sqlalchemy import inspect
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from storage.access.scopes import NOWHERE, Scope, Within
from storage.access.teams import Team, everyone_of
from storage.catalogue import cells
from storage.data import migrations
from storage.data.migrations import Migration, WatchedMigration
from storage.database import Database
from storage.errors import RecordNotFound, StateConflict
from storage.instances.instances import Instance

AT: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)


def made(db: Session, instance: Instance, status: str = "copying", **values: Any) -> Migration:
    migration = migrations.request(
        *(db, instance), source={"kind": "upload"}, mode="copy", dry_run=False, requested_by=None
    )
    migration.status = status
    for name, value in values.items():
        setattr(migration, name, value)
    db.flush()
    return migration


def test_what_is_asked_for_is_kept(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        asked = migrations.request(
            *(db, instance),
            source={"kind": "upload", "format": "csv", "table": "visits"},
            mode="copy",
            dry_run=True,
            requested_by="usr_1",
        )
        assert asked.status == "awaiting_source"
        assert asked.id.startswith("mig_")
    with database.read() as db:
        found = migrations.fetch(db, instance, asked.id)
        assert (found.org_id, found.instance_id) == (instance.org_id, instance.id)
        assert (found.source_kind, found.source_format) == ("upload", "csv")
        assert (found.source_table, found.mode, found.dry_run) == ("visits", "copy", True)
        assert (found.status, found.requested_by) == ("awaiting_source", "usr_1")
        with pytest.raises(RecordNotFound, match=r"^migration not found$"):
            migrations.fetch(db, instance, "mig_none")


def test_pages_of_an_instance_have_its_own_newest_first(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        instance, other = tenants.instance(db, tenant), tenants.instance(db, tenant)
        mine = [made(db, instance, "failed", preflight={"tables": 1}).id for _ in range(3)]
        made(db, other)
    with database.read() as db:
        first = migrations.page(db, instance, limit=2, after=None)
        rest = migrations.page(db, instance, limit=2, after=first.next_after)
        assert [each.id for each in (*first.items, *rest.items)] == mine[::-1]
        assert rest.next_after is None
        # What may be long is read with the migration alone.
        assert {"preflight", "verification"} <= inspect(first.items[0]).unloaded
        assert "progress" not in inspect(first.items[0]).unloaded


def test_pages_of_an_organization_are_those_of_some_teams_and_of_one_status(
    database: Database,
) -> None:
    with database.write() as db:
        tenant, foreign = tenants.make(db), tenants.make(db)
        db.add(Team(id="team_two", org_id=tenant.org_id, name="Two", slug="two"))
        db.flush()
        of_all = tenants.instance(db, tenant)
        of_two = tenants.instance(db, tenant, team_id="team_two")
        first, second = made(db, of_all, "failed").id, made(db, of_two, "failed").id
        third = made(db, of_two).id
        made(db, tenants.instance(db, foreign))
    with database.read() as db:

        def found(scope: Within = None, status: str | None = None, **place: Any) -> list[str]:
            asked = {"limit": 9, "after": None, **place}
            page = migrations.page_of_org(db, tenant.org_id, scope=scope, status=status, **asked)
            return [each.id for each in page.items]

        assert found() == [third, second, first]
        assert found(limit=1) == [third]
        assert found(after=third) == [second, first]
        assert found(status="failed") == [second, first]
        assert found(status="cancelled") == []
        assert found(Scope(frozenset({"team_two"}))) == [third, second]
        assert found(Scope(frozenset({"team_two"})), "copying") == [third]
        assert found(Scope(frozenset({everyone_of(tenant.org_id)}))) == [first]
        assert found(NOWHERE) == []


def test_a_way_back_is_the_instances_own(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        instance, other = tenants.instance(db, tenant), tenants.instance(db, tenant)
        made(db, instance, "completed")
        assert migrations.way_back(db, instance) is None
        kept = made(db, instance, "completed", way_back_until=AT)
        made(db, instance)
        for lock in (False, True):
            assert migrations.way_back(db, instance, lock=lock) is kept
            assert migrations.way_back(db, other, lock=lock) is None


def test_what_is_in_the_way_is_named_with_what_to_do(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        free, busy, kept = (tenants.instance(db, tenant) for _ in range(3))
        under_way = made(db, busy, "syncing")
        made(db, free, "completed")
        ended = made(db, kept, "completed", way_back_until=AT)
        in_the_way = (
            f"cannot move an instance into which a migration is made ({under_way.id} is syncing);"
            " wait until it has ended, or cancel it"
        )
        way_back = (
            f"cannot move an instance while the migration {ended.id} keeps a way back from it;"
            " wait until that has ended, or cancel the migration"
        )
        refusals: list[tuple[Callable[..., None], Instance, str | None]] = [
            (migrations.check_none, free, None),
            (migrations.check_none, busy, in_the_way),
            (migrations.check_none, kept, None),
            (migrations.check_no_way_back, free, None),
            (migrations.check_no_way_back, busy, None),
            (migrations.check_no_way_back, kept, way_back),
            (migrations.check_free, free, None),
            (migrations.check_free, busy, in_the_way),
            (migrations.check_free, kept, way_back),
        ]
        for check, instance, expected in refusals:
            if expected is None:
                check(db, instance, "move")
                continue
            with pytest.raises(StateConflict) as refused:
                check(db, instance, "move")
            assert refused.value.detail == expected


def test_a_cell_is_asked_about_those_of_its_instances_in_their_order(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        cells.register(db, "cell_a", region="eu", url="", public_url="", instance_domain="")
        one, two, gone, there = (tenants.instance(db, tenant) for _ in range(4))
        there.cell_id, gone.desired_status = "cell_a", "erased"
        first = made(db, two)
        second = made(db, one, "completed", way_back_until=AT)
        made(db, one, "failed")
        made(db, gone)
        elsewhere = made(db, there)

        def found(cell_id: str, after: str = "", limit: int = 9) -> list[WatchedMigration]:
            return migrations.watched(db, cell_id, after=after, limit=limit)

        expected = [
            WatchedMigration(tenant.org_id, two.id, first.id),
            WatchedMigration(tenant.org_id, one.id, second.id),
        ]
        assert found(tenant.cell_id) == expected
        assert found(tenant.cell_id, limit=1) == expected[:1]
        assert found(tenant.cell_id, after=first.id) == expected[1:]
        assert [each.id for each in found("cell_a")] == [elsewhere.id]
        assert found("cell_other") == []
        assert migrations.watched_cells(db) == ["cell_a", tenant.cell_id]


def test_those_that_have_ended_are_forgotten_oldest_first_and_so_many_at_once(
    database: Database,
) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        ended = ("completed", "failed", "cancelled")
        ids = [made(db, instance, status).id for status in ended]
        under_way = made(db, instance).id
        now = database.now(db)

        def left() -> list[str]:
            return [each.id for each in migrations.page(db, instance, limit=9, after=None).items]

        assert migrations.forget_old(db, now - timedelta(minutes=1), 9) == 0
        assert migrations.forget_old(db, now + timedelta(minutes=1), 2) == 2
        assert left() == [under_way, ids[2]]
        assert migrations.forget_old(db, now + timedelta(minutes=1), 9) == 1
        assert left() == [under_way]


def test_an_instances_are_forgotten_and_no_others(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        own, beside = tenants.instance(db, tenant), tenants.instance(db, tenant)
        made(db, own, "failed")
        made(db, own)
        stays = made(db, beside)
        migrations.forget(db, own)
        assert migrations.page(db, own, limit=9, after=None).items == []
        assert migrations.page(db, beside, limit=9, after=None).items == [stays]
