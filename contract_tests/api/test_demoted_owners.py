"""Owners who become something less, or leave: each operation knows it at the next request."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from contract_tests.api.callers import (
    IN_ORG,
    PERMITTED,
    ask,
    is_for_owners,
    is_for_people,
    is_let_in,
    lacks,
    permission_of,
)
from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.rows import is_problem
from contract_tests.by_day import one_in
from control.policy.permissions import ROLES
from specserver import Operation
from storage.access import memberships


@dataclass(frozen=True)
class SecondOwner:
    """Of an organization that has another one, with a key of every right."""

    tenant: Tenant
    person: Person
    key: str


@pytest.fixture(scope="module")
def second(house: House) -> SecondOwner:
    tenant = house.tenant()
    person = house.member(tenant.org_id, "owner", mfa=True)
    key, _ = house.key(tenant.org_id, person, "owner")
    return SecondOwner(tenant, person, key)


@pytest.fixture(scope="module")
def stranger(house: House) -> str:
    """The session of somebody who never was in the organization."""
    return house.person(mfa=True).session


@contextmanager
def as_role(house: House, owner: SecondOwner, role: str) -> Iterator[None]:
    """By the record alone, which is all that the next request has."""
    for given in (role, "owner"):
        with house.database.write() as db:
            memberships.fetch(db, owner.tenant.org_id, owner.person.id).role = given
        if given == role:
            yield


@pytest.mark.parametrize("operation", one_in(3, PERMITTED), ids=lambda one: one.id)
def test_a_demoted_owner_loses_exactly_what_the_new_role_lacks(
    house: House, second: SecondOwner, operation: Operation
) -> None:
    tenant, permission = second.tenant, permission_of(operation)
    session, key = second.person.session, second.key
    by_key = not is_for_people(operation)
    assert is_let_in(ask(house, operation, tenant, session))
    assert is_let_in(ask(house, operation, tenant, key)) is by_key
    for role in ("member", "auditor"):
        with as_role(house, second, role):
            by_session = ask(house, operation, tenant, session)
            keys = ask(house, operation, tenant, key)
        if permission not in ROLES[role]:
            lacks(by_session, permission)
            assert not is_let_in(keys)
        elif is_for_owners(operation):
            is_problem(by_session, 403, "owner_required")
            assert not is_let_in(keys)
        else:
            assert is_let_in(by_session), by_session.text
            assert is_let_in(keys) is by_key
    # Promoted again, they have all of it at once.
    assert is_let_in(ask(house, operation, tenant, session))


@pytest.mark.parametrize("operation", one_in(3, IN_ORG), ids=lambda one: one.id)
def test_an_owner_who_is_no_member_any_more_finds_no_organization(
    house: House, second: SecondOwner, stranger: str, operation: Operation
) -> None:
    tenant, person = second.tenant, second.person
    assert ask(house, operation, tenant, person.session).status_code != 401
    with house.database.write() as db:
        db.delete(memberships.fetch(db, tenant.org_id, person.id))
    try:
        gone = ask(house, operation, tenant, person.session)
        keys = ask(house, operation, tenant, second.key)
    finally:
        with house.database.write() as db:
            memberships.create(db, tenant.org_id, person.id, "owner")
    is_problem(gone, 404, "not_found")
    is_problem(keys, 401)
    never = ask(house, operation, tenant, stranger)
    assert {**gone.json(), "request_id": ""} == {**never.json(), "request_id": ""}
