"""Weak callers against every operation: each role, keys for people, no second factor."""

from typing import Any

import pytest

from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.rows import NOBODY, OPERATIONS, is_problem, send
from control.policy import permissions
from specserver import Operation

PERMITTED = [
    one for one in OPERATIONS if one.extension("authorize")["permission"] in permissions.ALL
]
FOR_PEOPLE = [one for one in OPERATIONS if one.extension("authorize").get("session") == "user"]
WITH_MFA = [one for one in OPERATIONS if one.extension("authorize").get("assurance") == "mfa"]


@pytest.fixture(scope="module")
def tenant(house: House) -> Tenant:
    return house.tenant()


@pytest.fixture(scope="module")
def members(house: House, tenant: Tenant) -> dict[str, Person]:
    return {role: house.member(tenant.org_id, role, mfa=True) for role in permissions.ROLES}


@pytest.mark.parametrize("operation", PERMITTED, ids=lambda one: one.id)
def test_each_role_may_what_the_document_and_its_permissions_say(
    house: House, tenant: Tenant, members: dict[str, Person], operation: Operation
) -> None:
    rule = operation.extension("authorize")
    for role, member in members.items():
        allowed = rule["permission"] in permissions.of_role(role)
        allowed = allowed and rule.get("role") in (None, role)
        # The path leads nowhere and the body is empty, so nothing happens to whoever may.
        body: Any = {} if "requestBody" in operation.document else None
        ids = {**NOBODY, "org_id": tenant.org_id}
        answer = send(house, operation, ids, member.session, body)
        assert (answer.status_code == 403) is not allowed, (role, answer.text)
        assert answer.status_code != 401
        if not allowed:
            is_problem(answer, 403)


@pytest.mark.parametrize("operation", PERMITTED, ids=lambda one: one.id)
def test_a_scope_less_key_of_an_owner_may_nothing(
    house: House, tenant: Tenant, operation: Operation
) -> None:
    secret, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=[])
    is_problem(send(house, operation, {**NOBODY, "org_id": tenant.org_id}, secret), 403)


@pytest.mark.parametrize("operation", FOR_PEOPLE, ids=lambda one: one.id)
def test_an_api_key_is_no_person(house: House, tenant: Tenant, operation: Operation) -> None:
    answer = send(house, operation, {**NOBODY, "org_id": tenant.org_id}, tenant.key)
    is_problem(answer, 403, "session_required")


@pytest.mark.parametrize("operation", WITH_MFA, ids=lambda one: one.id)
def test_a_session_without_a_fresh_second_factor_is_refused(
    house: House, tenant: Tenant, operation: Operation
) -> None:
    ids = {**NOBODY, "org_id": tenant.org_id}
    is_problem(send(house, operation, ids, tenant.owner.session), 403, "mfa_required")
