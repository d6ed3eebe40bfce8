"""Weak callers against every operation: each role, keys for people, no second factor."""

import re
from pathlib import Path
from typing import Any

import pytest

from contract_tests.api import second_factor
from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.rows import NOBODY, OPERATIONS, is_problem, send
from control.policy import permissions
from specserver import Operation

PERMITTED = [
    one for one in OPERATIONS if one.extension("authorize")["permission"] in permissions.ALL
]
FOR_PEOPLE = [one for one in OPERATIONS if one.extension("authorize").get("session") == "user"]
ASSURED = {
    "backups.download": "second_factor",
    "instances.dump": "second_factor",
    "console.open": "second_factor",
    "credentials.reveal": "second_factor",
    "credentials.rotate": "second_factor",
    "migrations.create": "second_factor",
    "migrations.cutover": "second_factor",
    "migrations.source_url": "second_factor",
    "orgs.update": "second_factor",
    "team_members.set": "second_factor",
    "predefined_roles.reset": "second_factor",
    "predefined_roles.update": "second_factor",
    "project_members.set": "second_factor",
    "role_assignments.create": "second_factor",
    "webhooks.create": "second_factor",
    "webhooks.rotate_secret": "second_factor",
    "webhooks.update": "second_factor",
    "support_grants.create": "second_factor",
    "sso_connections.create": "second_factor",
    "sso_connections.update": "second_factor",
    "sso_connections.delete": "second_factor",
    "enterprise_sso.replace": "second_factor",
    "sso_domains.create": "second_factor",
    "sso_domains.update": "second_factor",
    "sso_domains.delete": "second_factor",
    "device_logins.decide": "second_factor",
    "scim_groups.update": "second_factor",
    "scim_tokens.create": "second_factor",
    "api_keys.create": "step_up",
    "service_accounts.create": "step_up",
    "service_accounts.create_key": "step_up",
    "enterprise.create": "step_up",
    "enterprise.detach": "step_up",
    "enterprise.update": "step_up",
    "workload_identities.create": "step_up",
    "backup_settings.update": "step_up",
    "backups.delete": "step_up",
    "backups.restore": "step_up",
    "api_keys.unsuspend": "step_up",
    "instances.erase": "step_up",
    "invites.create": "step_up",
    "members.remove": "step_up",
    "members.update": "step_up",
    "me.change_email": "step_up",
    "me.change_password": "step_up",
    "me.enrol_totp": "step_up",
    "me.confirm_totp": "step_up",
    "passkeys.create": "step_up",
    "passkeys.options": "step_up",
    "queues.delete": "step_up",
    "siem_deliveries.create": "step_up",
    "siem_deliveries.delete": "step_up",
    "siem_deliveries.switch": "step_up",
    "queues.permit": "step_up",
    "queues.purge": "step_up",
    "compliance.sign_baa": "mfa",
    "enterprise.attach": "mfa",
    "me.remove_totp": "mfa",
    "me.renew_recovery_codes": "mfa",
    "passkeys.delete": "mfa",
    "network.replace": "mfa",
    "orgs.close": "mfa",
}
"""Stated here again, so that none is taken away by an edit of the document alone."""
NEEDING_NOTHING = {"me.enrol_totp", "passkeys.options"}
"""They do what they do with an empty body, for whoever is let in."""
OWNERS_ALONE = {
    *("compliance.sign_baa", "orgs.close", "instances.erase"),
    *("enterprise.attach", "enterprise.create", "enterprise.detach", "enterprise.update"),
    "scim_tokens.create",
}
WITH_MFA = [one for one in OPERATIONS if ASSURED.get(one.id) == "mfa"]
FOR_ENROLLED = [one for one in OPERATIONS if ASSURED.get(one.id) in {"step_up", "second_factor"}]


@pytest.fixture(scope="module")
def tenant(house: House) -> Tenant:
    return house.tenant()


@pytest.fixture(scope="module")
def enrolled(house: House) -> Tenant:
    """Of an owner with an authenticator app, whose session is an MFA session."""
    tenant = house.tenant()
    second_factor.enrolled(house, tenant.owner)
    return tenant


@pytest.fixture(scope="module")
def members(house: House, tenant: Tenant) -> dict[str, Person]:
    return {role: house.member(tenant.org_id, role, mfa=True) for role in permissions.ROLES}


@pytest.mark.parametrize("operation", PERMITTED, ids=lambda one: one.id)
def test_each_role_may_what_the_document_and_its_permissions_say(
    house: House, tenant: Tenant, members: dict[str, Person], operation: Operation
) -> None:
    rule = operation.extension("authorize")
    for role, member in members.items():
        allowed = rule["permission"] in permissions.ROLES[role]
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


def test_the_second_factor_is_asked_for_where_it_is_stated() -> None:
    found = {one.id: one.extension("authorize").get("assurance") for one in OPERATIONS}
    assert {name: asked for name, asked in found.items() if asked} == ASSURED


@pytest.mark.parametrize("operation", FOR_ENROLLED, ids=lambda one: one.id)
def test_who_enrolled_is_asked_for_it_and_nobody_else(
    house: House, tenant: Tenant, enrolled: Tenant, operation: Operation
) -> None:
    ids = {**NOBODY, "org_id": enrolled.org_id}
    body: Any = {} if "requestBody" in operation.document else None
    refused = send(house, operation, ids, house.session(enrolled.owner.id), body)
    is_problem(refused, 403, "mfa_required")
    past = {404, 422} | ({200, 201, 409} if operation.id in NEEDING_NOTHING else set())
    assert send(house, operation, ids, enrolled.owner.session, body).status_code in past
    ids["org_id"] = tenant.org_id
    passed = send(house, operation, ids, tenant.owner.session, body)
    assert passed.status_code in past, passed.text


def test_the_page_of_permissions_lists_them() -> None:
    page = (Path(__file__).parents[2] / "docs/permissions.md").read_text()
    lines = page.partition("## Second factor")[2].split("\n- ")[1:4]
    for line, kind in zip(lines, ("mfa", "second_factor", "step_up"), strict=True):
        assert set(re.findall(r"`(\w+\.\w+)`", line)) == {
            name for name, asked in ASSURED.items() if asked == kind
        }


def test_what_only_owners_may_is_stated_in_the_document() -> None:
    asked = {one.id for one in OPERATIONS if one.extension("authorize").get("role") == "owner"}
    assert asked == OWNERS_ALONE
