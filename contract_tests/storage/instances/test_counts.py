"""What is counted and listed of instances: those of the organization or the project alone."""

from datetime import UTC, datetime

import pytest

from contract_tests.storage import tenants
from storage.access import projects, teams
from storage.access.scopes import NOWHERE, Scope, Within
from storage.access.teams import Team
from storage.catalogue import cells
from storage.database import Database
from storage.errors import RecordNotFound, StateConflict
from storage.instances import allocations, changes, in_scope, instances, of_projects
from storage.instances.instances import Instance

GB = 10**9
AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_what_an_organization_uses_and_what_it_has_deleted(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        assert allocations.of_organization(db, tenant.org_id) == (0, 0, 0, 0)
        for _ in range(2):
            tenants.instance(db, tenant)
        assert allocations.of_organization(db, tenant.org_id) == (2, 2 * GB, 0, 0)
        for status in ("deleted", "deleted", "deleted", "erased"):
            tenants.instance(db, tenant, status=status, desired_status=status)
        tenants.instance(db, other)
        assert allocations.of_organization(db, tenant.org_id) == (2, 2 * GB, 3, 3 * GB)
        assert allocations.of_organization(db, other.org_id) == (1, GB, 0, 0)


def test_the_instances_of_a_project_are_counted_by_status(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        for status in ("running", "running", "paused", "erased"):
            tenants.instance(db, tenant, status=status)
        tenants.instance(db, other)
        found = of_projects.count_by_status(db, tenant.org_id, tenant.project_id)
        assert found == {"running": 2, "paused": 1}
        assert of_projects.count_by_status(db, other.org_id, tenant.project_id) == {}


def test_a_name_is_taken_within_its_project_while_it_is_wanted(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        one = tenants.instance(db, tenant, name="shop", status="running")
        assert of_projects.is_name_taken(db, tenant.project_id, "shop")
        assert not of_projects.is_name_taken(db, tenant.project_id, "other")
        assert not of_projects.is_name_taken(db, other.project_id, "shop")
        one.delete(None)
        db.flush()
        assert not of_projects.is_name_taken(db, tenant.project_id, "shop")


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
        other = tenants.make(db).org_id
        assert changes.page(db, other, mine.id, limit=2, after=None).items == []
        assert changes.pending(db, other, mine.id) == []
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
        third = tenants.instance(db, tenant, size="s1", status="running")
        changes.order(db, third, {"size": "s2"}, requested_by=None, now=AT)
        changes.order(db, one, {"storage": GB // 2}, requested_by=None, now=AT)
        counted = allocations.by_cell(db, [tenant.cell_id])[tenant.cell_id]
        assert (counted.instances, counted.storage_bytes) == (3, 5 * GB)
        assert counted.sizes == {"f0": 2, "s1": 1}
        assert sorted(counted.growing) == [("f0", "s0"), ("s1", "s2")]


def test_a_cell_is_found_by_its_id(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        first = cells.fetch(db, tenant.cell_id)
        assert first.region == "local"
        named = {
            "region": "eu",
            "url": "https://cell.eu",
            "public_url": "https://eu.example",
            "instance_domain": "eu.example",
        }
        cells.register(db, "cell_a", **named)
        again = cells.register(db, tenant.cell_id, **named)
        assert again is first
        assert [one.id for one in cells.every(db)] == ["cell_a", tenant.cell_id]
        for cell in cells.every(db):
            assert {name: getattr(cell, name) for name in named} == named
        with pytest.raises(RecordNotFound, match=r"^cell not found$"):
            cells.fetch(db, "cell_other")


def test_instances_are_listed_by_what_is_asked_of_them(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        db.add(Team(id="team_two", org_id=tenant.org_id, name="Two", slug="two"))
        project = projects.create(db, tenant.org_id, name="second", slug="second")
        db.flush()
        first = tenants.instance(db, tenant, status="running").id
        second = tenants.instance(db, tenant, status="paused", desired_status="paused")
        second.team_id, second.project_id, second.branch_of = "team_two", project.id, first
        third = tenants.instance(db, tenant, status="deleted", desired_status="deleted").id
        erased = tenants.instance(db, tenant, status="erased", desired_status="erased").id
        theirs = tenants.instance(db, other, status="running").id
        elsewhere = tenants.instance(db, other, status="running")
        cells.register(db, "cell_a", region="eu", url="", public_url="", instance_domain="")
        elsewhere.cell_id = "cell_a"
        db.flush()
        two, org_id, cell_id = second.id, tenant.org_id, tenant.cell_id
    everyones = Scope(frozenset({teams.everyone_of(org_id)}))

    with database.read() as db:

        def page(
            scope: Within = None, after: str | None = None, **filters: str | None
        ) -> list[str]:
            found = instances.page(db, org_id, scope=scope, limit=9, after=after, **filters)
            return [one.id for one in found.items]

        def ids(found: list[Instance]) -> list[str]:
            return [one.id for one in found]

        assert page() == [two, first]
        assert page(name=None) == [two, first]
        assert page(after=two) == [first]
        assert page(everyones) == [first]
        assert page(NOWHERE) == []
        assert page(project_id=project.id) == page(branch_of=first) == [two]
        assert page(status="deleted") == [third]
        assert ids(in_scope.live(db, org_id, scope=None)) == [first, two]
        assert ids(in_scope.live(db, org_id, scope=everyones)) == [first]
        assert ids(instances.in_statuses(db, org_id, ["deleted", "running", "erased"])) == [
            first, third,
        ]  # fmt: skip
        assert sorted(ids(instances.of_cell(db, cell_id))) == [first, two, third, theirs]
    with database.write() as db:
        of_projects.leave_project(db, other.org_id, tenant.project_id)
        assert db.get_one(Instance, erased).project_id == tenant.project_id
        of_projects.leave_project(db, org_id, project.id)
        assert db.get_one(Instance, erased).project_id == tenant.project_id
        of_projects.leave_project(db, org_id, tenant.project_id)
        assert db.get_one(Instance, erased).project_id is None
        assert db.get_one(Instance, first).project_id == tenant.project_id


def test_a_scope_is_of_teams_and_of_projects_and_of_instances(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        org_id = tenant.org_id
        project = projects.create(db, org_id, name="second", slug="second")
        first, two, three = (tenants.instance(db, tenant, status="running") for _ in range(3))
        two.project_id = project.id
        foreign = tenants.instance(db, other, status="running")
        ids = first.id, two.id, three.id
        asked = {
            Scope(projects=frozenset({project.id})): [two.id],
            Scope(instances=frozenset({first.id, foreign.id})): [first.id],
            Scope(projects=frozenset({project.id}), instances=frozenset({first.id})): [*ids[:2]],
            Scope(frozenset({first.team_id})): [*ids],
            NOWHERE: [],
        }
        db.flush()
        for scope, expected in asked.items():
            found = instances.page(db, org_id, scope=scope, limit=9, after=None).items
            assert [one.id for one in reversed(found)] == expected
            assert [one.id for one in in_scope.live(db, org_id, scope=scope)] == expected
