"""Approvals as records: what each is at which moment, which are whose, and what teams hold."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from contract_tests.storage.query_plans import query_plans
from storage import identifiers, tenancy
from storage.access import memberships, team_members, teams, users
from storage.access.teams import everyone_of
from storage.database import Database
from storage.errors import RecordNotFound, StateConflict
from storage.instances import allocations, approvals, changes, of_projects
from storage.instances.approvals import Approval

AT: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)
TICK: Final = timedelta(milliseconds=1)
UNTIL: Final = AT + timedelta(days=7)


def user(db: Session) -> str:
    name = identifiers.new("").lower()
    return users.create(db, email=f"{name}@example.org", name="Somebody").id


def approval(db: Session, org_id: str, **values: Any) -> Approval:
    requester = values.get("requester_id") or user(db)
    return approvals.request(
        db,
        org_id,
        {
            "team_id": everyone_of(org_id),
            "project_id": "proj_some",
            "requested_by": requester,
            "requester_id": requester,
            "order": {"engine": "duckdb", "size": "s0"},
            "reasons": [{"rule": "every_order", "message": "so"}],
            "cost_cents": 1_000,
            "expires_at": UNTIL,
            **values,
        },
    )


def pending() -> Approval:
    return Approval(status="pending", expires_at=UNTIL)


def test_what_becomes_of_one() -> None:
    approved, denied, expired = pending(), pending(), pending()
    approved.approve("usr_1", AT, None, "inst_1")
    denied.deny("key_1", AT, "no")
    assert not expired.expire(UNTIL - TICK)
    assert expired.status_at(UNTIL - TICK) == "pending"
    assert expired.status_at(UNTIL) == "expired", "before anybody has marked it"
    assert expired.expire(UNTIL)
    assert not expired.expire(UNTIL), "it is told once"
    assert (approved.status, approved.instance_id) == ("approved", "inst_1")
    assert (approved.decided_by, approved.decided_at) == ("usr_1", AT)
    assert (denied.status, denied.decision_reason, denied.instance_id) == ("denied", "no", None)
    assert [each.status_at(UNTIL) for each in (approved, denied)] == ["approved", "denied"]


STEPS = st.lists(
    st.sampled_from(["approve", "deny", "expire"]) | st.timedeltas(timedelta(), timedelta(days=5)),
    max_size=12,
)


@given(steps=STEPS)
def test_it_is_decided_once_and_in_time_or_expires(steps: list[Any]) -> None:
    one, now = pending(), AT
    model, told = "pending", 0
    for step in steps:
        if isinstance(step, timedelta):
            now += step
            if model == "pending" and now >= UNTIL:
                model = "expired"
        elif step == "expire":
            told += one.expire(now)
        elif model == "pending":
            told += 1
            model = {"approve": "approved", "deny": "denied"}[step]
            decide(one, step, now)
        else:
            with pytest.raises(StateConflict, match="expired" if model == "expired" else model):
                decide(one, step, now)
        assert one.status_at(now) == model
        assert one.status in ("pending", model)
    assert told <= 1
    assert (one.instance_id is not None) is (model == "approved")
    assert (one.decided_by is not None) is (model in {"approved", "denied"})


def decide(one: Approval, verb: str, now: datetime) -> None:
    if verb == "approve":
        one.approve("usr_1", now, None, "inst_1")
    else:
        one.deny("usr_1", now, "no")


def test_one_is_of_its_organization(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        made = approval(db, tenant.org_id)
        assert made.id.startswith("apr_")
    with database.write() as db:
        found = approvals.fetch(db, tenant.org_id, made.id, lock=True)
        assert found.order == {"engine": "duckdb", "size": "s0"}
        assert found.reasons == [{"rule": "every_order", "message": "so"}]
        assert (found.status, found.cost_cents, found.expires_at) == ("pending", 1_000, UNTIL)
        for org_id, wanted in ((other.org_id, made.id), (tenant.org_id, "apr_none")):
            with pytest.raises(RecordNotFound, match=r"^approval not found$"):
                approvals.fetch(db, org_id, wanted)
        tenancy.restrict(db, other.org_id)
        assert approvals.count_pending(db, other.org_id, AT) == 0


def test_lists_are_by_team_requester_and_status(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        org_id, me = tenant.org_id, user(db)
        blue = teams.create(db, org_id, {"name": "Blue", "slug": "blue"}).id
        mine = approval(db, org_id, requester_id=me)
        of_blue = approval(db, org_id, team_id=blue)
        of_everyone = approval(db, org_id)
        approved, denied, marked = (approval(db, org_id, requester_id=me) for _ in range(3))
        late = approval(db, org_id, requester_id=me, expires_at=AT)
        approved.approve(me, AT, None, "inst_1")
        denied.deny(me, AT, "no")
        marked.expire(UNTIL)
        approval(db, other.org_id, requester_id=me)
        db.flush()

        def listed(**chosen: Any) -> list[Approval]:
            asked: dict[str, Any] = {"status": "pending", "teams": None, "mine": False}
            asked |= {"requester_id": me, "team_id": None, "limit": 10, "after": None, **chosen}
            return approvals.page(db, org_id, now=AT, **asked).items

        assert listed() == [of_everyone, of_blue, mine]
        assert listed(teams=frozenset({blue})) == [of_blue, mine]
        assert listed(teams=frozenset()) == [mine]
        assert listed(mine=True) == listed(mine=True, teams=frozenset({blue})) == [mine]
        assert listed(team_id=blue) == [of_blue]
        assert listed(team_id=blue, teams=frozenset()) == []
        assert listed(status="approved") == [approved]
        assert listed(status="denied") == [denied]
        assert listed(status="expired") == [late, marked]
        assert len(listed(status="all")) == 7
        assert listed(limit=1) == [of_everyone]
        assert listed(after=of_everyone.id) == [of_blue, mine]
        assert approvals.count_pending(db, org_id, AT) == 3
        assert approvals.count_pending(db, org_id, AT, requester_id=me) == 1
        assert approvals.is_pending(db, org_id, mine.id, AT)
        assert not approvals.is_pending(db, org_id, mine.id, UNTIL)
        assert not approvals.is_pending(db, org_id, approved.id, AT)
        assert not approvals.is_pending(db, other.org_id, mine.id, AT)


def test_those_to_mark_are_found_by_their_index_oldest_first(database: Database) -> None:
    with database.write() as db:
        first, second = tenants.make(db), tenants.make(db)
        older = approval(db, second.org_id, expires_at=AT - TICK)
        newer = approval(db, first.org_id, expires_at=AT)
        approval(db, first.org_id, expires_at=AT + TICK)
        approval(db, first.org_id, expires_at=AT - TICK).deny("usr_1", AT - 2 * TICK, "no")
    expected = [(second.org_id, older.id), (first.org_id, newer.id)]
    with database.read() as db, query_plans(db) as plans:
        assert approvals.expired(db, AT, 10) == expected
        assert approvals.expired(db, AT, 1) == expected[:1]
    assert all("ix_approvals_pending" in plan for plan in plans)


def test_old_ones_are_forgotten(database: Database) -> None:
    with database.write() as db:
        org_id = tenants.make(db).org_id
        made = [approval(db, org_id) for _ in range(3)]
        later = made[-1].created_at + timedelta(seconds=1)
        assert approvals.forget_old(db, made[0].created_at - timedelta(days=1), 10) == 0
        assert approvals.forget_old(db, later, 2) == 2
        assert approvals.forget_old(db, later, 2) == 1


def test_what_a_team_holds_counts_as_it_is_to_be(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        org_id = tenant.org_id
        blue = teams.create(db, org_id, {"name": "Blue", "slug": "blue"}).id
        running = tenants.instance(db, tenant, team_id=blue, size="s0", status="running")
        paused = tenants.instance(db, tenant, team_id=blue, size="s1", desired_status="paused")
        failed = tenants.instance(db, tenant, team_id=blue, size="f0", status="failed")
        tenants.instance(db, tenant, team_id=blue, size="l8", desired_status="deleted")
        tenants.instance(db, tenant, size="l16")
        db.flush()
        held = [("local", "f0", 10**9), ("local", "s0", 10**9), ("local", "s1", 10**9)]
        assert sorted(allocations.of_team(db, org_id, blue)) == held
        for each, size in ((running, "s0"), (paused, "s1"), (failed, "f0")):
            rest = [one for one in held if one[1] != size]
            assert sorted(allocations.of_team(db, org_id, blue, besides=each.id)) == rest
        wanted = {"size": "m2", "storage": 7 * 10**9}
        changes.order(db, running, wanted, requested_by=None, now=AT)
        db.flush()
        grown = [("local", "f0", 10**9), ("local", "m2", 7 * 10**9), ("local", "s1", 10**9)]
        assert sorted(allocations.of_team(db, org_id, blue)) == grown
        assert allocations.of_team(db, tenants.make(db).org_id, blue) == []


def test_members_with_roles_that_decide(database: Database) -> None:
    with database.write() as db:
        org_id = tenants.make(db).org_id
        blue = teams.create(db, org_id, {"name": "Blue", "slug": "blue"})
        green = teams.create(db, org_id, {"name": "Green", "slug": "green"})
        made = {}
        for name, role, in_team in (
            ("owner", "owner", None),
            ("admin", "admin", (blue, "viewer")),
            ("lead", "member", (blue, "admin")),
            ("operator", "member", (blue, "operator")),
            ("developer", "developer", None),
            ("elsewhere", "member", (green, "admin")),
        ):
            made[name] = user(db)
            membership = memberships.create(db, org_id, made[name], role)
            if in_team is not None:
                team_members.put(db, in_team[0], membership, in_team[1])

        def found(limit: int = 10) -> list[str]:
            roles = {"org_roles": ("owner", "admin"), "team_roles": ("admin",)}
            rows = team_members.with_roles(db, blue, limit=limit, **roles)
            return [row.user_id for row in rows]

        assert found() == [made[name] for name in ("lead", "owner", "admin")]
        assert found(1) == [made["lead"]]


def test_whether_a_project_has_anything(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        assert not of_projects.has_any(db, tenant.org_id, tenant.project_id)
        one = tenants.instance(db, tenant, status="erased", desired_status="erased")
        db.flush()
        assert not of_projects.has_any(db, tenant.org_id, tenant.project_id)
        one.status = one.desired_status = "deleted"
        db.flush()
        assert of_projects.has_any(db, tenant.org_id, tenant.project_id)
        assert not of_projects.has_any(db, other.org_id, other.project_id)
