"""People, their organizations, teams and projects: found by what names them, and counted."""

import pytest
from sqlalchemy import select

from contract_tests.storage import tenants
from contract_tests.storage.tenants import roles_in_teams
from storage import tenancy
from storage.access import memberships, organizations, projects, teams, users
from storage.access.memberships import Membership
from storage.access.scopes import NOWHERE, Scope
from storage.access.teams import TeamMember
from storage.database import Database
from storage.errors import RecordNotFound


def test_a_person_is_found_by_the_address_however_it_is_written(database: Database) -> None:
    with database.write() as db:
        assert not users.is_anyone(db)
        ada = users.create(db, email="Ada@Example.org", name="Ada", password_hash="hash")
        assert users.is_anyone(db)
        assert users.by_email(db, "aDA@example.ORG") is ada
        assert users.by_email(db, "bob@example.org") is None
        assert ada.id.startswith("usr_")
        assert (ada.email, ada.name, ada.password_hash) == ("ada@example.org", "Ada", "hash")


def test_a_membership_is_of_one_person_in_one_organization(database: Database) -> None:
    with database.write() as db:
        ada = users.create(db, email="ada@example.org", name="Ada")
        bob = users.create(db, email="bob@example.org", name="Bob")
        tenant, other = tenants.make(db), tenants.make(db)
        made = memberships.create(db, tenant.org_id, ada.id, "admin")
        memberships.create(db, other.org_id, bob.id, "owner")
        assert memberships.find(db, tenant.org_id, ada.id) is made
        assert memberships.find(db, other.org_id, ada.id) is None
        assert memberships.find(db, tenant.org_id, bob.id) is None
        assert made.role == "admin"
        names = [organization.id for organization, _ in organizations.of_user(db, bob.id)]
        assert names == [other.org_id]


def test_an_organization_begins_as_it_is_ordered(database: Database) -> None:
    with database.write() as db:
        plain = organizations.create(db, name="Plain", slug="plain")
        chosen = organizations.create(
            db, name="Chosen", slug="chosen", default_region="eu", plan="team"
        )
        assert (plain.name, plain.slug, plain.default_region, plain.plan) == (
            "Plain", "plain", None, "free",
        )  # fmt: skip
        assert (chosen.default_region, chosen.plan, chosen.status) == ("eu", "team", "open")
        everyone = db.get_one(teams.Team, teams.everyone_of(plain.id))
        assert (everyone.name, everyone.slug, everyone.org_id) == (
            "Everyone", "everyone", plain.id,
        )  # fmt: skip
        assert plain.id.startswith("org_")
        assert everyone.id == f"team_{plain.id.removeprefix('org_')}"
        key = tenants.key(db, chosen.id, users.create(db, email="a@example.org", name="A").id)
        tenancy.restrict(db, plain.id)
        assert organizations.of_key(db, key) is chosen
        with pytest.raises(RecordNotFound, match=r"^organization not found$"):
            organizations.fetch(db, "org_none")


def test_roles_in_teams_are_those_of_the_member_alone(database: Database) -> None:
    with database.write() as db:
        ada = users.create(db, email="ada@example.org", name="Ada")
        bob = users.create(db, email="bob@example.org", name="Bob")
        org_id, other = tenants.make(db).org_id, tenants.make(db).org_id
        everyone = teams.everyone_of(org_id)
        first = memberships.create(db, org_id, ada.id, "member")
        second = memberships.create(db, org_id, bob.id, "member")
        memberships.create(db, other, ada.id, "member")
        elsewhere = {"team_id": teams.everyone_of(other), "org_id": other}
        db.add(TeamMember(team_id=everyone, user_id=ada.id, org_id=org_id, role="viewer"))
        db.add(TeamMember(**elsewhere, user_id=ada.id, role="admin"))
        db.flush()
        assert roles_in_teams(db, first) == {everyone: "viewer"}
        assert roles_in_teams(db, second) == {}
        rows = select(Membership.user_id, teams.roles_of_member())
        found: dict[str, dict[str, str]] = dict(
            db.execute(rows.where(Membership.org_id == org_id)).tuples().all()
        )
        assert found[ada.id] == {everyone: "viewer"}
        assert not found[bob.id]


def test_projects_are_those_of_the_organization(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        made = [projects.create(db, tenant.org_id, name=n, slug=n) for n in ("a", "b")]
        assert projects.count(db, tenant.org_id) == 3
        assert projects.count(db, other.org_id) == 1
        oldest = projects.first(db, tenant.org_id)
        assert oldest is not None
        assert oldest.id == tenant.project_id
        assert projects.is_slug_taken(db, tenant.org_id, "a")
        assert not projects.is_slug_taken(db, other.org_id, "a")
        assert not projects.is_slug_taken(db, tenant.org_id, "c")
        everyone = teams.everyone_of(tenant.org_id)
        assert made[0].team_id == everyone
        assert made[0].id.startswith("proj_")
        page = projects.page(db, tenant.org_id, scope=None, limit=2, after=None)
        assert page.items == made[::-1]
        rest = projects.page(db, tenant.org_id, scope=None, limit=2, after=page.next_after)
        assert [one.id for one in rest.items] == [tenant.project_id]
        nobodys = projects.page(db, tenant.org_id, scope=NOWHERE, limit=2, after=None)
        assert nobodys.items == []
        theirs = projects.page(
            db, tenant.org_id, scope=Scope(teams=frozenset({everyone})), limit=9, after=None
        )
        assert len(theirs.items) == 3
        assert organizations.is_slug_taken(db, organizations.fetch(db, other.org_id).slug)
        assert not organizations.is_slug_taken(db, "free")
