"""Roles that groups of an identity provider give, pushed and claimed, on each kind of database."""

import pytest
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from control.access import role_holders
from control.policy.permissions import ROLES, TEAM_ROLES
from control.policy.rights import Rights
from control.sso import group_grants
from storage.access import memberships, teams, users
from storage.database import Database
from storage.sso import scim_groups, scim_users
from storage.sso.scim_groups import ScimGroup

CONNECTION = "ssoc_one"


class House:
    """An organization with a member who was pushed, and groups by name."""

    def __init__(self, db: Session, role: str = "member") -> None:
        self.db, self.org_id = db, tenants.make(db).org_id
        self.user_id = users.create(db, email=f"{self.org_id}@example.com", name="Ada").id
        memberships.create(db, self.org_id, self.user_id, role)
        scim_users.create(db, self.org_id, self.user_id, "ada", made_account=True)
        db.flush()

    def group(self, name: str, *, external_id: str | None = None) -> ScimGroup:
        return scim_groups.create(
            self.db, self.org_id, name, external_id=external_id, is_pushed=True
        )

    def claimed(self, *names: str, connection: str = CONNECTION) -> list[str]:
        now = self.db.get_one(memberships.Membership, (self.org_id, self.user_id)).created_at
        return group_grants.claimed(self.db, self.org_id, self.user_id, connection, names, now)

    @property
    def rights(self) -> Rights:
        self.db.flush()
        found = role_holders.of_member(self.db, self.org_id, self.user_id)
        assert found is not None
        return found.rights


def test_a_group_gives_its_roles_beside_those_that_somebody_has(database: Database) -> None:
    with database.write() as db:
        house = House(db)
        team = teams.create(db, house.org_id, {"name": "Data", "slug": "data"})
        alone = house.rights
        group = house.group("Data people")
        scim_groups.put_members(db, group, [house.user_id])
        assert house.rights == alone
        group.grant("auditor", team.id, "admin")
        held = house.rights
        assert held.everywhere == alone.everywhere | ROLES["auditor"]
        assert held.held_at(team.place) == held.everywhere | TEAM_ROLES["admin"]
        scim_groups.take_members(db, group, [house.user_id])
        assert house.rights == alone


@pytest.mark.parametrize("role", ["owner", "admin", "developer", "member", "auditor"])
def test_no_group_takes_anything(database: Database, role: str) -> None:
    """The role that somebody has stays, however little the group gives."""
    with database.write() as db:
        house = House(db, role)
        before = house.rights
        group = house.group("g")
        scim_groups.put_members(db, group, [house.user_id])
        for org_role in scim_groups.ORG_ROLES:
            group.grant(org_role, None, None)
            assert not before.beyond(house.rights)


def test_what_is_pushed_and_what_is_claimed_are_apart(database: Database) -> None:
    with database.write() as db:
        house = House(db)
        alone = house.rights
        pushed = house.group("Pushed", external_id="g-1")
        pushed.grant("admin", None, None)
        scim_groups.put_members(db, pushed, [house.user_id])
        assert house.claimed("g-1", "Other") == [
            pushed.id,
            *(one.id for one in scim_groups.named(db, house.org_id, ["other"])),
        ]
        house.claimed()
        assert house.rights.everywhere == ROLES["admin"]
        house.claimed("PUSHED")
        scim_groups.take_members(db, pushed, [house.user_id])
        assert house.rights.everywhere == ROLES["admin"]
        house.claimed(connection="ssoc_two")
        assert house.rights.everywhere == ROLES["admin"]
        house.claimed()
        assert house.rights == alone


def test_what_one_connection_no_longer_says_another_still_may(database: Database) -> None:
    with database.write() as db:
        house = House(db)
        house.group("Admins").grant("admin", None, None)
        for connection in (CONNECTION, "ssoc_two"):
            house.claimed("Admins", connection=connection)
        house.claimed()
        assert house.rights.everywhere == ROLES["admin"]


def test_a_connection_that_is_deleted_says_nothing(database: Database) -> None:
    with database.write() as db:
        house = House(db)
        alone = house.rights
        house.claimed("Admins")
        (group,) = scim_groups.named(db, house.org_id, ["admins"])
        assert not group.is_pushed
        group.grant("admin", None, None)
        assert house.rights != alone
        group_grants.forget(db, house.org_id, CONNECTION)
        assert house.rights == alone


def test_claims_end_with_the_membership_and_pushes_wait(database: Database) -> None:
    with database.write() as db:
        house = House(db)
        for name in ("claimed", "pushed"):
            house.group(name).grant("admin" if name == "claimed" else "auditor", None, None)
        house.claimed("claimed")
        (pushed,) = scim_groups.named(db, house.org_id, ["pushed"])
        scim_groups.put_members(db, pushed, [house.user_id])
        db.delete(memberships.fetch(db, house.org_id, house.user_id))
        db.flush()
        assert role_holders.of_member(db, house.org_id, house.user_id) is None
        memberships.create(db, house.org_id, house.user_id, "member")
        assert house.rights.everywhere >= ROLES["auditor"]
        assert not house.rights.has("members:write")


def test_claims_are_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with database.write() as db:
        house = House(db)
        many = [f"group {number}" for number in range(group_grants.CLAIMED_MAX + 5)]
        assert len(house.claimed(*many, "x" * 300, "")) == group_grants.CLAIMED_MAX
        monkeypatch.setattr(group_grants, "GROUPS_MAX", scim_groups.count(db, house.org_id) + 1)
        assert len(house.claimed("new", "newer", "group 1")) == 2


def test_a_team_that_is_deleted_takes_its_role_along(database: Database) -> None:
    with database.write() as db:
        house = House(db)
        team = teams.create(db, house.org_id, {"name": "Data", "slug": "data"})
        group = house.group("g")
        group.grant(None, team.id, "admin")
        scim_groups.put_members(db, group, [house.user_id])
        assert house.rights.held_at(team.place) >= TEAM_ROLES["admin"]
        teams.delete(db, team)
        db.expire_all()
        assert group.team_id is None
        assert "team:write" not in house.rights.anywhere


def test_names_are_alike_whatever_their_case_and_form(database: Database) -> None:
    with database.write() as db:
        house = House(db)
        group = house.group("Straße Café")
        assert house.claimed("STRASSE CAFE\u0301") == [group.id]
        assert scim_groups.by_name(db, house.org_id, "strasse café") is group
        assert scim_groups.sizes(db, house.org_id, [group.id]) == {group.id: 1}
        scim_groups.put_members(db, group, [house.user_id])
        assert scim_groups.sizes(db, house.org_id, [group.id]) == {group.id: 1}
