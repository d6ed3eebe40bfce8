"""Each permission alone against its operations: given by a role or a support grant, or taken."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

from contract_tests.api.access.team_helpers import outsider, team
from contract_tests.api.callers import (
    BY_PERMISSION,
    PERMITTED,
    ask,
    is_for_owners,
    is_let_in,
    lacks,
)
from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.roles.role_helpers import assign, role
from contract_tests.api.rows import is_problem
from contract_tests.by_day import one_in
from control.policy.permissions import ALL, ROLES, SUPPORT, TEAM
from specserver import Operation
from storage.access.users import User

every_permission = pytest.mark.parametrize("permission", one_in(6, sorted(BY_PERMISSION)))
of_teams = pytest.mark.parametrize("permission", sorted(TEAM & set(BY_PERMISSION)))


@dataclass(frozen=True)
class Bare:
    """An organization whose role member holds nothing, so that what members may was given beside.

    `ada` and `bob` have passed the second factor.
    """

    tenant: Tenant
    ada: Person
    bob: Person
    team_id: str


@pytest.fixture(scope="module")
def bare(house: House) -> Bare:
    tenant = house.tenant()
    blue = team(house, tenant).rpartition("/")[2]
    house.change_org(tenant.org_id, role_sets={"org:member": []})
    people = (outsider(house, tenant) for _ in range(2))
    ada, bob = (Person(one.id, one.email, house.session(one.id, mfa=True)) for one in people)
    return Bare(tenant, ada, bob, blue)


@contextmanager
def given(
    house: House, bare: Bare, person: Person, held: frozenset[str], team_id: str | None = None
) -> Iterator[None]:
    """A custom role with these permissions alone, until it is deleted."""
    path = role(house, bare.tenant, *sorted(held), name=f"of {person.id}")
    assert assign(house, path, bare.tenant.key, person.id, team_id).status_code == 201
    try:
        yield
    finally:
        assert house.request("DELETE", path, bare.tenant.key).status_code == 204


def test_every_operation_that_asks_for_a_permission_is_tried() -> None:
    """And every permission lets somebody do something."""
    assert set(BY_PERMISSION) == ALL
    assert sum(map(len, BY_PERMISSION.values())) == len(PERMITTED) > 120


@every_permission
def test_a_custom_role_lets_do_what_its_one_permission_is_for(
    house: House, bare: Bare, permission: str
) -> None:
    tenant, ada, bob = bare.tenant, bare.ada, bare.bob
    with (
        given(house, bare, ada, frozenset({permission})),
        given(house, bare, bob, ALL - {permission}),
    ):
        for operation in BY_PERMISSION[permission]:
            _is_let_in_but_for_owners(ask(house, operation, tenant, ada.session), operation)
            lacks(ask(house, operation, tenant, bob.session), permission)
    for operation in BY_PERMISSION[permission]:
        lacks(ask(house, operation, tenant, ada.session), permission)


def _is_let_in_but_for_owners(answer: httpx.Response, operation: Operation) -> None:
    if is_for_owners(operation):
        is_problem(answer, 403, "owner_required")
    else:
        assert is_let_in(answer), (operation.id, answer.text)


@of_teams
def test_a_custom_role_in_a_team_does_the_same_for_what_teams_have(
    house: House, bare: Bare, permission: str
) -> None:
    tenant, ada, bob = bare.tenant, bare.ada, bare.bob
    with (
        given(house, bare, ada, frozenset({permission}), bare.team_id),
        given(house, bare, bob, TEAM - {permission}, bare.team_id),
    ):
        for operation in BY_PERMISSION[permission]:
            assert is_let_in(ask(house, operation, tenant, ada.session)), operation.id
            lacks(ask(house, operation, tenant, bob.session), permission)
    for operation in BY_PERMISSION[permission]:
        lacks(ask(house, operation, tenant, ada.session), permission)


@pytest.mark.parametrize("permission", one_in(6, sorted(ROLES["admin"])))
def test_what_is_taken_from_admins_is_refused_to_them_and_their_keys(
    house: House, bare: Bare, admin: Person, permission: str
) -> None:
    tenant = bare.tenant
    key, _ = house.key(tenant.org_id, admin, "admin")
    owned, _ = house.key(tenant.org_id, tenant.owner, "admin")
    path = f"{tenant.path}/predefined-roles/admin"
    left = {"permissions": sorted(ROLES["admin"] - {permission})}
    operations = [one for one in BY_PERMISSION[permission] if not is_for_owners(one)]
    for operation in operations:
        assert is_let_in(ask(house, operation, tenant, admin.session)), operation.id
    changed = house.request("PATCH", path, tenant.key, json=left)
    assert changed.status_code == 200, changed.text
    for operation in BY_PERMISSION[permission]:
        lacks(ask(house, operation, tenant, admin.session), permission)
        # A key of this role is weaker with it, whoever owns it.
        for token in (key, owned):
            assert not is_let_in(ask(house, operation, tenant, token)), operation.id
    reset = house.post(f"{path}/actions/reset", tenant.key)
    assert reset.status_code == 200, reset.text
    for operation in operations[:1]:
        assert is_let_in(ask(house, operation, tenant, admin.session)), operation.id


@pytest.fixture(scope="module")
def admin(house: House, bare: Bare) -> Person:
    return house.member(bare.tenant.org_id, "admin", mfa=True)


@pytest.fixture(scope="module")
def support(house: House) -> Person:
    person = house.person("Support", mfa=True)
    with house.database.write() as db:
        db.get_one(User, person.id).is_support = True
    return person


@pytest.mark.parametrize("permission", sorted(SUPPORT))
def test_support_may_what_was_granted_and_no_more(
    house: House, support: Person, permission: str
) -> None:
    one, others = house.tenant(), house.tenant()
    granted(house, one, {permission})
    granted(house, others, SUPPORT - {permission})
    for operation in BY_PERMISSION[permission]:
        _is_let_in_but_for_owners(ask(house, operation, one, support.session), operation)
        lacks(ask(house, operation, others, support.session), permission)


@pytest.mark.parametrize("permission", sorted(ALL - SUPPORT))
def test_what_cannot_be_granted_support_never_may(
    house: House, support: Person, all_granted: Tenant, permission: str
) -> None:
    body = {"permissions": ["org:read", permission], "reason": "slow since Monday"}
    refused = house.post(f"{all_granted.path}/support-grants", all_granted.key, json=body)
    is_problem(refused, 422)
    for operation in BY_PERMISSION[permission]:
        lacks(ask(house, operation, all_granted, support.session), permission)


@pytest.fixture(scope="module")
def all_granted(house: House) -> Tenant:
    tenant = house.tenant()
    granted(house, tenant, SUPPORT)
    return tenant


def granted(house: House, tenant: Tenant, held: set[str] | frozenset[str]) -> None:
    body = {"permissions": sorted(held), "reason": "slow since Monday"}
    made = house.post(f"{tenant.path}/support-grants", tenant.key, json=body)
    assert made.status_code == 201, made.text
