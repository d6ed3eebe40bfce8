"""Members of an organization and the API keys that they made: fetched, listed and counted."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from storage.access import api_keys, memberships, users
from storage.access.memberships import Membership
from storage.access.users import User
from storage.database import Database
from storage.errors import RecordNotFound


def people(db: Session, *names: str) -> list[User]:
    return [users.create(db, email=f"{each}@example.org", name=each) for each in names]


def test_a_member_is_fetched_from_its_organization(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        ada, bob = people(db, "ada", "bob")
        made = memberships.create(db, tenant.org_id, ada.id, "admin")
        assert memberships.fetch(db, tenant.org_id, ada.id) is made
        for org_id, user_id in ((other.org_id, ada.id), (tenant.org_id, bob.id)):
            with pytest.raises(RecordNotFound, match=r"^member not found$"):
                memberships.fetch(db, org_id, user_id)
        # Whoever holds it decides by what it is, and not by what it was.
        behind = update(Membership).values(role="owner")
        db.execute(behind, execution_options={"synchronize_session": False})
        assert memberships.fetch(db, tenant.org_id, ada.id).role == "admin"
        assert memberships.fetch(db, tenant.org_id, ada.id, lock=True).role == "owner"


def test_members_are_listed_and_counted_by_role(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        ada, bob, eve = people(db, "ada", "bob", "eve")
        for user, role in ((eve, "owner"), (ada, "owner"), (bob, "member")):
            memberships.create(db, tenant.org_id, user.id, role)
        memberships.create(db, other.org_id, bob.id, "owner")
        first = memberships.page(db, tenant.org_id, limit=2, after=None)
        rest = memberships.page(db, tenant.org_id, limit=2, after=first.next_after)
        assert [each.user_id for each in first.items] == [eve.id, bob.id]
        assert [each.user_id for each in rest.items] == [ada.id]
        assert memberships.count(db, tenant.org_id) == 3
        assert memberships.count(db, tenant.org_id, "owner") == 2
        assert memberships.count(db, tenant.org_id, "admin") == 0
        assert memberships.count(db, other.org_id) == 1


def test_the_first_owner_has_owned_the_organization_for_longest(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        ada, bob, eve = people(db, "ada", "bob", "eve")
        now = database.now(db)

        def add(org_id: str, user: User, role: str, hours: int) -> Membership:
            made = memberships.create(db, org_id, user.id, role)
            made.created_at = now - timedelta(hours=hours)
            return made

        assert memberships.first_owner(db, tenant.org_id) is None
        add(tenant.org_id, bob, "admin", 9)
        add(other.org_id, bob, "owner", 8)
        assert memberships.first_owner(db, tenant.org_id) is None
        late = add(tenant.org_id, ada, "owner", 1)
        early = add(tenant.org_id, eve, "owner", 2)
        assert memberships.first_owner(db, tenant.org_id) == eve.id
        early.created_at = late.created_at
        assert memberships.first_owner(db, tenant.org_id) == ada.id
        assert memberships.first_owner(db, other.org_id) == bob.id


def test_people_are_found_by_their_ids(database: Database) -> None:
    with database.write() as db:
        ada, bob, eve = people(db, "ada", "bob", "eve")
        asked = [ada.id, eve.id, "usr_none"]
        assert users.of_ids(db, asked) == {ada.id: ada, eve.id: eve}
        assert users.of_ids(db, []) == {}
        assert bob.id not in users.of_ids(db, asked)


def test_keys_are_counted_as_they_are_listed(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        (ada,) = people(db, "ada")
        now = database.now(db)
        values: tuple[dict[str, Any], ...] = (
            {},
            {"expires_at": now + timedelta(hours=1)},
            {"suspended_at": now},
            {"expires_at": now},
            {"revoked_at": now},
        )
        for each in values:
            tenants.key(db, tenant.org_id, ada.id, **each)
        tenants.key(db, other.org_id, ada.id)
        listed = api_keys.page(db, tenant.org_id, now=now, limit=9, after=None).items
        assert len(listed) == api_keys.count(db, tenant.org_id, now=now) == 3
        assert api_keys.count(db, other.org_id, now=now) == 1
        assert api_keys.count(db, "org_none", now=now) == 0


def test_the_keys_that_a_member_made_end_in_that_organization(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        ada, bob = people(db, "ada", "bob")
        now = database.now(db)
        mine = [tenants.key(db, tenant.org_id, ada.id) for _ in range(2)]
        kept = [tenants.key(db, tenant.org_id, bob.id), tenants.key(db, other.org_id, ada.id)]
        ended = tenants.key(db, tenant.org_id, ada.id, revoked_at=now - timedelta(days=1))
        assert api_keys.revoke_of(db, tenant.org_id, ada.id, now) == 2
        for each in (*mine, *kept, ended):
            db.refresh(each)
        assert [each.revoked_at for each in mine] == [now, now]
        assert [each.revoked_at for each in kept] == [None, None]
        assert ended.revoked_at == now - timedelta(days=1)
        assert api_keys.revoke_of(db, tenant.org_id, ada.id, now) == 0
