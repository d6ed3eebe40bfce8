"""What is counted and listed of instances: those of the organization or the project alone."""

from datetime import UTC, datetime

import pytest

from contract_tests.storage import tenants
from storage.catalogue import cells
from storage.database import Database
from storage.errors import RecordNotFound, StateConflict
from storage.instances import allocations, changes, instances

GB = 10**9
AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_what_an_organization_uses_and_what_it_has_deleted(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        assert instances.usage(db, tenant.org_id) == (0, 0, 0, 0)
        for _ in range(2):
            tenants.instance(db, tenant)
        assert instances.usage(db, tenant.org_id) == (2, 2 * GB, 0, 0)
        for status in ("deleted", "deleted", "deleted", "erased"):
            tenants.instance(db, tenant, status=status, desired_status=status)
        tenants.instance(db, other)
        assert instances.usage(db, tenant.org_id) == (2, 2 * GB, 3, 3 * GB)
        assert instances.usage(db, other.org_id) == (1, GB, 0, 0)


def test_the_instances_of_a_project_are_counted_by_status(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        for status in ("running", "running", "paused", "erased"):
            tenants.instance(db, tenant, status=status)
        tenants.instance(db, other)
        found = instances.count_by_status(db, tenant.org_id, tenant.project_id)
        assert found == {"running": 2, "paused": 1}
        assert instances.count_by_status(db, other.org_id, tenant.project_id) == {}


def test_a_name_is_taken_within_its_project_while_it_is_wanted(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        one = tenants.instance(db, tenant, name="shop", status="running")
        assert instances.is_name_taken(db, tenant.project_id, "shop")
        assert not instances.is_name_taken(db, tenant.project_id, "other")
        assert not instances.is_name_taken(db, other.project_id, "shop")
        one.delete(None)
        db.flush()
        assert not instances.is_name_taken(db, tenant.project_id, "shop")


def test_what_needs_a_running_instance_says_how_to_have_one(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        tenants.instance(db, tenant, status="running").check_running("query")
        paused = tenants.instance(db, tenant, status="paused")
        with pytest.raises(StateConflict) as refused:
            paused.check_running("query")
        assert refused.value.detail == "cannot query an instance that is paused; resume it first"
        with pytest.raises(StateConflict) as refused:
            tenants.instance(db, tenant, status="failed").check_running("query")
        assert refused.value.detail == "cannot query an instance that is failed"


def test_changes_are_listed_newest_first_and_given_up_with_the_instance(
    database: Database,
) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        mine = tenants.instance(db, tenant, status="running")
        beside = tenants.instance(db, tenant, status="running")
        now = database.now(db)
        wanted = {"size": "s0", "storage": 2 * GB, "name": "renamed"}
        made = changes.order(db, mine, wanted, requested_by="usr_1", now=now)
        changes.order(db, beside, {"size": "s0"}, requested_by=None, now=now)
        assert [(one.kind, one.old, one.new, one.status, one.requested_by) for one in made] == [
            ("size", "f0", "s0", "pending", "usr_1"),
            ("storage", GB, 2 * GB, "pending", "usr_1"),
            ("name", mine.id, "renamed", "applied", "usr_1"),
        ]
        page = changes.page(db, tenant.org_id, mine.id, limit=2, after=None)
        assert page.items == made[:0:-1]
        rest = changes.page(db, tenant.org_id, mine.id, limit=2, after=page.next_after)
        assert (rest.items, rest.next_after) == ([made[0]], None)
        assert changes.pending(db, tenant.org_id, mine.id) == made[:2]
        changes.give_up(db, tenant.org_id, mine.id)
        db.flush()
        assert changes.pending(db, tenant.org_id, mine.id) == []
        assert [one.status for one in made] == ["failed", "failed", "applied"]
        assert len(changes.pending(db, tenant.org_id, beside.id)) == 1


def test_an_instance_that_is_to_move_is_not_counted_where_it_is(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        one, other = (tenants.instance(db, tenant, status="running") for _ in range(2))
        counted = allocations.by_cell(db, [tenant.cell_id], besides=one.id)[tenant.cell_id]
        assert (counted.instances, counted.storage_bytes) == (1, GB)
        changes.order(db, other, {"size": "s0", "storage": 3 * GB}, requested_by=None, now=AT)
        counted = allocations.by_cell(db, [tenant.cell_id, "cell_other"])[tenant.cell_id]
        assert (counted.instances, counted.storage_bytes) == (2, 4 * GB)
        assert counted.growing == [("f0", "s0")]


def test_a_cell_is_found_by_its_id(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        assert cells.fetch(db, tenant.cell_id).region == "local"
        with pytest.raises(RecordNotFound, match=r"^cell not found$"):
            cells.fetch(db, "cell_other")
