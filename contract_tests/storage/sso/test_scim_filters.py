"""What the database makes of a filter is what the protocol means by it."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scim2_models import ScimFilter
from sqlalchemy import select
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from control.sso.scim import filters
from control.sso.scim.resources import User, make_provider, user_of
from storage.access import memberships, users
from storage.access.memberships import Membership
from storage.database import Database
from storage.sso import scim_users
from storage.sso.scim_users import JOINED, ScimUser

NAMES = ["ada", "Grace", "straße", "x' OR '1'='1", "100%", "_"]
PROVIDER = make_provider()
names = st.sampled_from([*NAMES, "ADA", "STRASSE", "nobody", '"'])
leaves = st.one_of(
    names.map(lambda name: f"userName eq {ScimFilter.quote(name)}"),
    names.map(lambda name: f"externalId eq {ScimFilter.quote(name)}"),
    st.booleans().map(lambda active: f"active eq {str(active).lower()}"),
)
asked = st.recursive(
    leaves,
    lambda inner: st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
        lambda three: f"({three[0]}) {three[1]} ({three[2]})"
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def filled(databases: object) -> Iterator[tuple[Database, str]]:
    database = Database(databases.migrated("sqlite"))  # type: ignore[attr-defined]
    with database.write() as db:
        org_id = tenants.make(db).org_id
        for number, name in enumerate(NAMES):
            email = f"{os.urandom(6).hex()}@example.com"
            user_id = users.create(db, email=email, name=name).id
            record = scim_users.create(db, org_id, user_id, name, made_account=True)
            record.external_id = name if number % 2 else None
            if number % 3:
                memberships.create(db, org_id, user_id, "member")
    yield database, org_id
    database.dispose()


def of_everybody(db: Session, org_id: str) -> list[User]:
    rows = select(ScimUser, Membership.user_id).outerjoin(Membership, JOINED)
    rows = rows.where(ScimUser.org_id == org_id)
    return [user_of(record, is_active=bool(member)) for record, member in db.execute(rows)]


@given(text=asked)
def test_a_filter_chooses_the_same_in_both(filled: tuple[Database, str], text: str) -> None:
    database, org_id = filled
    with PROVIDER, database.read() as db:
        bound = ScimFilter[User](text)
        expected = {one.id for one in of_everybody(db, org_id) if bound.match(one)}
        rows = select(ScimUser.user_id).outerjoin(Membership, JOINED)
        rows = rows.where(ScimUser.org_id == org_id, filters.condition(User, bound.ast))
        assert set(db.scalars(rows)) == expected


@pytest.mark.parametrize(
    "text",
    [
        'userName ne "ada"',
        'userName co "a"',
        "userName pr",
        'not (userName eq "ada")',
        'displayName eq "x"',
        'emails[type eq "work"]',
        'name.familyName eq "x"',
        "externalId eq null",
    ],
)
def test_what_is_of_no_column_is_looked_at_one_by_one(text: str) -> None:
    with PROVIDER, pytest.raises(filters.NotOfColumns):
        filters.condition(User, ScimFilter[User](text).ast)
