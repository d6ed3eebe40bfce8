"""Strangers against every operation: no key, a bad key, a revoked key, another org's key."""

from dataclasses import replace

import pytest

from contract_tests.api.billing.billing_acts import ACTS
from contract_tests.api.billing.test_referrals import referred
from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import House
from contract_tests.api.rows import (
    IDS,
    NOBODY,
    OPERATIONS,
    Estate,
    alerted,
    estate,
    is_problem,
    nested,
    send,
)
from control.boundary import identity
from specserver import Operation
from storage.instances.samples import Sample

PUBLIC = {
    "system.health",
    "invoices.get",
    "invoices.pdf",
    "system.description",
    "password_resets.complete",
    "passkeys.sign_in",
    "passkeys.sign_in_options",
    "password_resets.create",
    "sessions.create",
    "saml.metadata",
    "saml.sign_in",
    "sso_discovery.discover",
    "sso_sign_ins.create",
    "sso_sign_ins.complete",
    "device_logins.create",
    "device_logins.exchange",
    "users.create",
    "leak_reports.create",
    "payments.receive",
    "workload_identities.exchange",
}
SECURED = [one for one in OPERATIONS if one.security]
IN_ORG = [one for one in OPERATIONS if "{org_id}" in one.path]
NESTED = [one for one in OPERATIONS if nested(one)]
READING = [one for one in OPERATIONS if one.method == "GET"]
CELLS = {"queues.list"}
"""Lists that a cell answers, which is asked for those of one instance."""
ELSEWHERE = {
    "engines.list": "the catalogue, which is the same for everybody",
    "events.kinds": "the kinds that there are, which are the same for everybody",
    "plans.list": "the catalogue",
    "regions.list": "the catalogue",
    "sizes.list": "the catalogue",
    "orgs.list": "the caller's own, which the canary of the owner is looked for in",
    "leak_reports.create": "what the sender of a report has sent, labelled",
    "passkeys.list": "the caller's own, which have no organization",
    "sessions.list": "the caller's own, which have no organization",
}
"""Lists outside of any organization, and whose they are."""
NAMELESS = {
    *("instances.metrics", "restores.list", "permissions.list", "predefined_roles.list"),
    *("migrations.list", "migrations.list_in_instance", "webhooks.deliveries"),
    *("usage.list", "cost_report.get", "referrals.list"),
    *("role_assignments.list", "project_roles.list", "project_members.list", "audit.heads"),
}
"""Lists of what has no name, but figures and ids."""
CANARY = "canary-7c1f0e"

every = pytest.mark.parametrize


def ids(operation: Operation) -> str:
    return operation.id


def is_list(operation: Operation) -> bool:
    """By what the document says of the answer, so that no list is forgotten for its name."""
    content = operation.document["responses"].get("200", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    return schema.get("type") == "array" or "items" in schema.get("properties", {})


LISTS = [one for one in IN_ORG if is_list(one) and one.id not in CELLS]


@pytest.fixture(scope="module")
def victim(house: House) -> Estate:
    made = estate(house, f"Victim {CANARY}")
    path = f"{made.tenant.path}/instances/{made.instance_id}"
    key = made.tenant.key
    for method, where, body in (
        ("PATCH", path, {"name": f"{CANARY}-renamed"}),
        ("POST", f"{path}/branches", {"name": f"{CANARY}-branch"}),
        ("POST", f"{path}/domains", {"hostname": f"{CANARY}.example.com"}),
        ("POST", f"{path}/backups", {"label": CANARY}),
    ):
        assert house.request(method, where, key, json=body).is_success
    alerted(house, made.instance_id)
    hour = house.now().replace(minute=0, second=0, microsecond=0)
    referred(house, made.tenant)
    ACTS["invoice.finalized.v1"][0](house, made.tenant, made.instance_id)
    with house.database.write() as db:
        org_id, of = made.tenant.org_id, made.instance_id
        db.add(Sample(instance_id=of, org_id=org_id, hour=hour, storage_bytes=1, seen_at=hour))
    return made


@pytest.fixture(scope="module")
def stranger(house: House) -> Estate:
    return estate(house, "Stranger")


def test_only_these_operations_are_public() -> None:
    assert {one.id for one in OPERATIONS if not one.security} == PUBLIC
    assert len(IDS) == len(set(IDS))


@every("operation", SECURED, ids=ids)
def test_without_a_valid_token_it_is_401(
    house: House, victim: Estate, stranger: Estate, operation: Operation
) -> None:
    revoked, key_id = house.key(victim.tenant.org_id, victim.tenant.owner, "owner")
    house.change_key(victim.tenant.org_id, key_id, revoked_at=house.now())
    tokens = (
        None,
        "mk_live_bad",
        identity.new_api_key().secret,
        identity.new_session_token().secret,
        revoked,
    )
    for token in tokens:
        answer = send(house, operation, victim.ids, token)
        is_problem(answer, 401)
        assert answer.headers["www-authenticate"].startswith("Bearer")


@every("operation", IN_ORG, ids=ids)
def test_another_orgs_callers_get_the_404_of_what_never_was(
    house: House, victim: Estate, stranger: Estate, operation: Operation
) -> None:
    # An API key on an operation for people is refused for what it is, wherever it points.
    for token in (stranger.tenant.key, stranger.tenant.owner.session):
        theirs = send(house, operation, victim.ids, token)
        never = send(house, operation, NOBODY, token)
        is_problem(theirs, 404, "not_found")
        assert _without_request(theirs.json()) == _without_request(never.json())
        assert _names(theirs.headers) == _names(never.headers)


@every("operation", NESTED, ids=ids)
def test_what_is_not_in_the_org_of_the_path_is_404(
    house: House, victim: Estate, operation: Operation
) -> None:
    """My org and another's resource, also where the other org is mine as well."""
    owner = house.person(mfa=True)
    mine = house.tenant(owner=owner)
    twin = Estate(house.tenant(owner=owner), victim.instance_id, victim.domain_id)
    twin = replace(twin, backup_id=victim.backup_id, restore_id=victim.restore_id)
    twin = replace(twin, migration_id=victim.migration_id)
    for foreign in (victim.ids, twin.ids, NOBODY):
        answer = send(house, operation, {**foreign, "org_id": mine.org_id}, owner.session)
        is_problem(answer, 404, "not_found")


@every("operation", READING, ids=ids)
def test_no_answer_shows_another_orgs_names(
    house: House, victim: Estate, stranger: Estate, operation: Operation
) -> None:
    for token in (stranger.tenant.key, stranger.tenant.owner.session):
        for path in (stranger.ids, {**victim.ids, "org_id": stranger.tenant.org_id}):
            text = send(house, operation, path, token).text
            assert CANARY not in text
            assert victim.tenant.owner.email not in text


@every("operation", LISTS, ids=ids)
def test_each_list_shows_its_owners_and_no_others(
    house: House, victim: Estate, stranger: Estate, operation: Operation
) -> None:
    owners = send(house, operation, victim.ids, victim.tenant.key)
    assert owners.json()["items"]
    assert (CANARY in owners.text) is (operation.id not in NAMELESS)
    shown = send(house, operation, stranger.ids, stranger.tenant.key).text
    theirs = {value for name, value in victim.ids.items() if name.endswith("_id")} - {"current"}
    assert not {each for each in theirs if each in shown}
    assert CANARY not in shown


def test_each_list_is_of_an_organization_or_says_whose_it_is() -> None:
    outside = {one.id for one in OPERATIONS if is_list(one) and one not in IN_ORG}
    assert outside == set(ELSEWHERE)


def test_the_canary_sings_where_it_lives(house: House, victim: Estate) -> None:
    """Or the test above could not fail."""
    singing = {
        one.id
        for one in READING
        if CANARY in send(house, one, victim.ids, victim.tenant.owner.session).text
    }
    assert singing >= {"me.get", "orgs.list", "orgs.get", "projects.list", "api_keys.list"}


def test_a_revoked_token_is_refused_by_every_replica_at_once(make_house: MakeHouse) -> None:
    first, second = make_house(), make_house()
    tenant = first.tenant()
    secret, key_id = first.key(tenant.org_id, tenant.owner, "owner")
    session = first.session(tenant.owner.id)
    assert second.get(tenant.path, secret).status_code == 200
    assert second.get(tenant.path, session).status_code == 200
    assert first.request("DELETE", f"{tenant.path}/api-keys/{key_id}", secret).status_code == 204
    assert first.request("DELETE", "/v1/sessions/current", session).status_code == 204
    for house in (first, second):
        is_problem(house.get(tenant.path, secret), 401)
        is_problem(house.get(tenant.path, session), 401)


def _without_request(problem: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in problem.items() if name != "request_id"}


def _names(headers: object) -> set[str]:
    return {name.lower() for name in dict(headers)}  # type: ignore[call-overload]
