"""Queries that every room relies on: tenancy, pages, names, quotas, sessions, keys, windows."""

from array import array
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event, update
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from contract_tests.storage.query_plans import query_plans
from storage import identifiers, rate_windows, tenancy
from storage.access import api_keys, memberships, organizations, projects, sessions, users
from storage.access.api_keys import ApiKey
from storage.access.sessions import UserSession
from storage.catalogue import cells
from storage.catalogue.cells import Cell
from storage.database import Database
from storage.errors import RecordNotFound, StateConflict
from storage.instances import allocations, changes, in_scope, instances, of_projects
from storage.network import domains

FETCHES: dict[str, Callable[[Session, str, str], Any]] = {
    "instance": instances.fetch,
    "project": projects.fetch,
    "api key": api_keys.fetch,
}


@pytest.mark.parametrize("what", FETCHES)
def test_another_tenants_record_and_none_are_the_same(database: Database, what: str) -> None:
    with database.write() as db:
        mine, theirs = tenants.make(db), tenants.make(db)
        user = users.create(db, email="a@example.org", name="A")
        made = {
            "instance": tenants.instance(db, theirs).id,
            "project": theirs.project_id,
            "api key": tenants.key(db, theirs.org_id, user.id).id,
        }
    with database.read() as db:
        assert FETCHES[what](db, theirs.org_id, made[what]).id == made[what]
        for wanted in (made[what], "inst_00000000000000000000000000"):
            with pytest.raises(RecordNotFound) as refused:
                FETCHES[what](db, mine.org_id, wanted)
            assert refused.value.detail == f"{what} not found"


def test_what_is_locked_is_read_anew(database: Database) -> None:
    """Whoever holds a record decides by what it is, and not by what it was."""
    with database.write() as db:
        tenant = tenants.make(db)
        org_id, project_id, now = tenant.org_id, tenant.project_id, database.now(db)
        user_id = users.create(db, email="a@example.org", name="A").id
        there = tenants.instance(db, tenant)
        key_id = tenants.key(db, org_id, user_id).id
        domain_id = tenants.domain(db, there, "a.example").id
        session = UserSession(id="ses_1", user_id=user_id, token_hash="hash", prefix="ms_")
        session.expires_at = now + timedelta(hours=1)
        db.add(session)
        fetches: list[tuple[str, Callable[..., Any]]] = [
            ("name", partial(instances.fetch, db, org_id, there.id)),
            ("name", partial(projects.fetch, db, org_id, project_id)),
            ("name", partial(api_keys.fetch, db, org_id, key_id)),
            ("prefix", partial(sessions.fetch, db, user_id, "ses_1", now)),
            ("hostname", partial(domains.fetch, db, there, domain_id)),
        ]
        for column, fetch in fetches:
            known = fetch()
            was, behind = getattr(known, column), update(type(known)).values({column: "changed"})
            db.execute(behind, execution_options={"synchronize_session": False})
            assert getattr(fetch(), column) == was
            assert getattr(fetch(lock=True), column) == "changed"
        cell = cells.fetch(db, tenant.cell_id)
        behind = update(Cell).values(region="changed")
        db.execute(behind, execution_options={"synchronize_session": False})
        assert cells.fetch(db, tenant.cell_id).region == cell.region == "local"


def test_pages_walk_every_instance_once_newest_first(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        mine = [tenants.instance(db, tenant).id for _ in range(17)]
        tenants.instance(db, other)

    @given(st.integers(1, 20))
    @settings(max_examples=10)
    def check(limit: int) -> None:
        walked: list[str] = []
        after = None
        with database.read() as db:
            while True:
                page = instances.page(db, tenant.org_id, scope=None, limit=limit, after=after)
                assert len(page.items) <= limit
                walked += [instance.id for instance in page.items]
                after = page.next_after
                if after is None:
                    break
        assert walked == mine[::-1]

    check()


def test_a_page_that_ends_with_the_last_item_has_no_next(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        for _ in range(4):
            tenants.instance(db, tenant)
    with database.read() as db:
        assert instances.page(db, tenant.org_id, scope=None, limit=4, after=None).next_after is None
        assert (
            instances.page(db, tenant.org_id, scope=None, limit=3, after=None).next_after
            is not None
        )


def test_a_page_reads_one_more_than_it_shows(database: Database) -> None:
    read: list[int] = []

    def count(_: Any, cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        if statement.startswith("SELECT"):
            told = cursor.connection.cursor()
            told.execute(f"SELECT count(*) FROM ({statement}) AS read", parameters)
            read.append(told.fetchone()[0])

    with database.write() as db:
        tenant = tenants.make(db)
        for slug in ("a", "b", "c"):
            projects.create(db, tenant.org_id, name=slug, slug=slug)
            tenants.instance(db, tenant)
        tenants.instance(db, tenant)
        event.listen(db.connection(), "before_cursor_execute", count)
        asked: dict[str, Any] = {"scope": None, "limit": 2, "after": None}
        assert len(projects.page(db, tenant.org_id, **asked).items) == 2
        assert len(instances.page(db, tenant.org_id, **asked).items) == 2
        assert read == [3, 3]


def test_instances_are_filtered_and_the_gone_are_left_out(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        tenants.instance(db, tenant, name="a", status="running")
        tenants.instance(db, tenant, name="b", status="paused", engine="postgres")
        for status in ("deleted", "erased"):
            tenants.instance(db, tenant, name=status, status=status, desired_status=status)

    def names(**filters: Any) -> list[str]:
        with database.read() as db:
            page = instances.page(db, tenant.org_id, scope=None, limit=10, after=None, **filters)
            return [instance.name for instance in page.items]

    assert names() == ["b", "a"]
    assert names(status="running") == ["a"]
    assert names(engine="postgres") == ["b"]
    assert names(name="a") == ["a"]
    assert names(project_id="proj_other") == []
    assert names(status="deleted") == ["deleted"]
    assert names(status="erased") == ["erased"]


def test_a_name_and_its_quota_are_free_once_its_holder_is_to_go(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        first = tenants.instance(db, tenant, name="same", status="running")
        assert allocations.of_organization(db, tenant.org_id)[0] == 1
        first.delete(None)
        db.flush()
        assert allocations.of_organization(db, tenant.org_id)[0] == 0
        tenants.instance(db, tenant, name="same")
        assert [each.id for each in in_scope.live(db, tenant.org_id, scope=None)] != [first.id]
        assert allocations.of_organization(db, tenant.org_id)[0] == 1


def test_a_change_that_changes_nothing_is_not_recorded(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db), status="running")
        moment = database.now(db)
        assert changes.order(db, instance, {"size": "f0"}, requested_by=None, now=moment) == []
        assert instance.status == "running"


def test_a_paused_instance_can_be_renamed_and_not_resized(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db), status="paused")
        moment = database.now(db)
        with pytest.raises(StateConflict, match="cannot change an instance that is paused"):
            changes.order(db, instance, {"size": "s0"}, requested_by=None, now=moment)
        (renamed,) = changes.order(db, instance, {"name": "new"}, requested_by=None, now=moment)
        assert (renamed.status, renamed.applied_at, instance.name) == ("applied", moment, "new")


def test_one_that_failed_with_data_can_be_given_more_storage(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db), status="failed")
        moment = database.now(db)
        more = {"storage": 2 * 10**9}
        instance.ready_at = None
        with pytest.raises(StateConflict, match="cannot change an instance that is failed"):
            changes.order(db, instance, more, requested_by=None, now=moment)
        instance.ready_at, instance.desired_status = moment, "deleted"
        with pytest.raises(StateConflict, match="failed and to be deleted"):
            changes.order(db, instance, more, requested_by=None, now=moment)
        # As after a resume that failed, which more storage would have helped.
        instance.desired_status = "paused"
        (change,) = changes.order(db, instance, more, requested_by=None, now=moment)
        assert (change.status, instance.status) == ("pending", "resizing")
        assert instance.desired_status == "running"


def test_sessions_end_by_expiry_and_by_revocation(database: Database) -> None:
    with database.write() as db:
        moment = database.now(db)
        user = users.create(db, email="Ada@Example.org", name="Ada")
        session = UserSession(
            id="ses_1",
            user_id=user.id,
            token_hash="hash",
            prefix="ms_",
            expires_at=moment + timedelta(hours=1),
        )
        db.add(session)
    with database.write() as db:
        assert users.by_email(db, "ADA@example.ORG") is not None
        assert sessions.fetch(db, user.id, "ses_1", moment).id == "ses_1"
        for other, at in (("usr_2", moment), (user.id, moment + timedelta(hours=1))):
            with pytest.raises(RecordNotFound):
                sessions.fetch(db, other, "ses_1", at)
        found = sessions.by_token_hash(db, "hash")
        assert found is not None
        found.revoke(moment)
        found.revoke(moment + timedelta(minutes=1))
        assert found.revoked_at == moment
        assert sessions.page(db, user.id, now=moment, limit=5, after=None).items == []
    with database.write() as db:
        assert sessions.forget_ended(db, moment, 10) == 0
        assert sessions.forget_ended(db, moment + timedelta(seconds=1), 10) == 1


def test_keys_are_listed_while_they_may_come_back(database: Database) -> None:
    with database.write() as db:
        moment = database.now(db)
        tenant = tenants.make(db)
        user = users.create(db, email="a@example.org", name="A")
        live = tenants.key(db, tenant.org_id, user.id)
        suspended = tenants.key(db, tenant.org_id, user.id, suspended_at=moment)
        tenants.key(db, tenant.org_id, user.id, expires_at=moment)
        tenants.key(db, tenant.org_id, user.id, revoked_at=moment)
        page = api_keys.page(db, tenant.org_id, now=moment, limit=10, after=None)
        assert [key.id for key in page.items] == [suspended.id, live.id]
        assert [key.is_live(moment) for key in page.items] == [False, True]
        assert api_keys.revoke_all(db, tenant.org_id, moment) == 3
    with database.read() as db:
        assert not db.get_one(ApiKey, live.id).is_live(moment)


def test_a_user_sees_the_organizations_of_its_memberships(database: Database) -> None:
    with database.write() as db:
        user = users.create(db, email="a@example.org", name="A")
        mine, other = tenants.make(db), tenants.make(db)
        memberships.create(db, mine.org_id, user.id, "owner")
        assert memberships.find(db, other.org_id, user.id) is None
        latest = tenants.make(db)
        memberships.create(db, latest.org_id, user.id, "member")
        memberships.create(db, other.org_id, user.id, "admin")
        assert [(o.id, role) for o, role in organizations.of_user(db, user.id)] == [
            (mine.org_id, "owner"),
            (other.org_id, "admin"),
            (latest.org_id, "member"),
        ]
    with pytest.raises(StateConflict, match="already a member"), database.write() as db:
        memberships.create(db, mine.org_id, user.id, "admin")


def test_a_closed_organization_cannot_be_closed_again(database: Database) -> None:
    with database.write() as db:
        organization = organizations.fetch(db, tenants.make(db).org_id)
        organization.close(database.now(db))
        with pytest.raises(StateConflict, match=r"^cannot close an organization that is closed$"):
            organization.close(database.now(db))


def test_rate_windows_are_kept_by_key_and_forgotten_when_idle(database: Database) -> None:
    with database.write() as db:
        moment = database.now(db)
        at = int(moment.timestamp() * 1000)
        for key, moments in (("busy", [at - 5, at]), ("idle", [at - 70_000])):
            assert list(rate_windows.lock(db, key)) == []
            rate_windows.keep(db, key, array("q", moments))
    with database.write() as db:
        assert list(rate_windows.lock(db, "busy")) == [at - 5, at]
        assert rate_windows.forget_idle(db, moment - timedelta(seconds=60), 10) == 1
        assert list(rate_windows.lock(db, "idle")) == []
        assert list(rate_windows.lock(db, "busy")) == [at - 5, at]


def test_so_many_idle_rate_windows_are_forgotten_at_once(database: Database) -> None:
    with database.write() as db:
        at = database.now(db)
        for key in "abc":
            rate_windows.lock(db, key)
            rate_windows.keep(db, key, array("q", [int(at.timestamp() * 1000)]))
        assert rate_windows.forget_idle(db, at, 10) == 0
        after = at + timedelta(milliseconds=1)
        assert [rate_windows.forget_idle(db, after, 2) for _ in range(3)] == [2, 1, 0]


def test_the_instances_of_a_cell_are_counted_whoever_they_belong_to(database: Database) -> None:
    """Placement takes the cell with the fewest, and it asks within the orderer's organization."""
    with database.write() as db:
        mine, other = tenants.make(db), tenants.make(db)
        tenants.instance(db, mine, status="paused", desired_status="paused")
        tenants.instance(db, other)
        tenants.instance(db, other, status="deleted", desired_status="deleted")
    with database.read() as db:
        tenancy.restrict(db, mine.org_id)
        allocated = allocations.by_cell(db, [mine.cell_id])[mine.cell_id]
    assert (allocated.instances, allocated.sizes["f0"]) == (2, 1)
    assert allocated.storage_bytes == 3 * 10**9


def test_what_was_erased_or_changed_long_ago_is_read_by_no_order(database: Database) -> None:
    """Orders hold SQLite's only writer, and of both an organization can have a million."""
    with database.write() as db:
        tenant = tenants.make(db)
        there = tenants.instance(db, tenant)
        tenants.instance(db, tenant, status="erased", desired_status="erased")
        cell_id, org_id, project_id = there.cell_id, tenant.org_id, tenant.project_id
    with database.read() as db, query_plans(db) as plans:
        assert [one.id for one in instances.of_cell(db, cell_id)] == [there.id]
        assert allocations.by_cell(db, [cell_id])[cell_id].storage_bytes == there.storage_bytes
        assert allocations.of_organization(db, org_id)[0] == 1
        assert of_projects.count_by_status(db, org_id, project_id) == {there.status: 1}
        assert not of_projects.is_name_taken(db, project_id, "none")
        assert [one.id for one in in_scope.live(db, org_id, scope=None)] == [there.id]
        assert list(instances.in_statuses(db, org_id, ["erased"])) == []
        found = instances.page(db, org_id, scope=None, limit=5, after=None)
        assert [one.id for one in found.items] == [there.id]
        assert changes.pending(db, org_id, there.id) == []
    used = {step.partition(" INDEX ")[2].partition(" ")[0] for step in plans}
    hosted = {f"ix_instances_{which}hosted" for which in ("", "org_", "project_")}
    assert used <= hosted | {"ix_instances_live_name", "ix_changes_pending"}


def test_changes_are_kept_for_a_time_and_for_as_long_as_they_wait(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db), status="running")
        asked: dict[str, Any] = {"requested_by": None, "now": database.now(db)}
        (renamed,) = changes.order(db, instance, {"name": "another"}, **asked)
        changes.order(db, instance, {"name": "a third"}, **asked)
        (waiting,) = changes.order(db, instance, {"size": "s1"}, **asked)
        kept = (instance.org_id, instance.id)
        wanted = [waiting.id]
        assert renamed.status == "applied"
        later = database.now(db) + timedelta(days=1)
    with database.write() as db:
        assert changes.forget_old(db, later - timedelta(days=2), 10) == 0
        assert [changes.forget_old(db, later, 1) for _ in range(3)] == [1, 1, 0]
        found = changes.page(db, *kept, limit=5, after=None)
        assert [one.id for one in found.items] == wanted


def test_ids_of_before_1970_are_none_and_sort_first() -> None:
    """What is kept for a hundred years is still counted back from today."""
    first = identifiers.first_of("aud_", datetime(1926, 1, 1, tzinfo=UTC))
    assert first == identifiers.first_of("aud_", datetime(1970, 1, 1, tzinfo=UTC))
    assert first < identifiers.new("aud_")
