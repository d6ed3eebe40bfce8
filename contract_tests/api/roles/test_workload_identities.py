"""Jobs that sign in by a token: what is trusted, what a token is good for, and what ends it."""

from datetime import timedelta
from typing import Any

import jwt
import pytest

from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import House, Tenant
from contract_tests.api.roles.role_helpers import assign, entries, mine, role
from contract_tests.api.roles.test_service_accounts import CLOSING, create, path_of
from contract_tests.api.roles.workload_helpers import (
    EXCHANGE,
    GITHUB,
    body,
    exchange,
    now,
    token,
    trusting,
    trusts,
)
from contract_tests.api.rows import is_problem, trusted
from contract_tests.api.second_factor import enrolled
from contract_tests.oidc_issuer import ec_key


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant(plan="team")


@pytest.fixture
def account(house: House, tenant: Tenant) -> dict[str, str]:
    return trusting(house, tenant)


# What a token is good for.


def test_a_job_gets_a_key_for_its_token(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    answer = exchange(house, account, token(house))
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["name"] == "repo:acme/shop:ref:refs/heads/main"
    assert (made["workload_identity_id"], made["service_account"]) == (account["trust"], True)
    assert (made["created_by"], made["role"]) == (account["id"], "developer")
    told = mine(house, tenant, made["key"])
    assert told["role"] == "developer"
    assert house.get(f"{tenant.path}/instances", made["key"]).status_code == 200
    listed = house.get(f"{tenant.path}/api-keys", tenant.key).json()["items"]
    assert {one["id"]: one["workload_identity_id"] for one in listed} == {
        made["id"]: account["trust"], account["key_id"]: None, tenant.key_id: None,
    }  # fmt: skip
    (entry,) = entries(house, tenant, "workload_identity.exchange")
    assert (entry["target"], entry["actor_kind"]) == (account["id"], "anonymous")
    assert entry["detail"] == {
        "key_id": made["id"],
        "workload_identity_id": account["trust"],
        "issuer": house.issuer.url,
        "subject": "repo:acme/shop:ref:refs/heads/main",
        "audience": "https://api.example.com",
        "scopes": None,
    }


def test_the_key_ends_after_an_hour(house: House, tenant: Tenant, account: dict[str, str]) -> None:
    """And not with the token, which for GitHub is over after some minutes."""
    key = exchange(house, account, token(house, exp=house.now().timestamp() + 60)).json()["key"]
    house.pass_time(3590)
    assert house.get(f"{tenant.path}/instances", key).status_code == 200
    house.pass_time(11)
    is_problem(house.get(f"{tenant.path}/instances", key), 401)


def test_scopes_limit_it(house: House, tenant: Tenant, account: dict[str, str]) -> None:
    made = exchange(house, account, token(house), scopes=["instances:read", "org:close"]).json()
    assert house.get(f"{tenant.path}/instances", made["key"]).status_code == 200
    is_problem(house.get(f"{tenant.path}/projects", made["key"]), 403, "permission_missing")
    closed = house.post(f"{tenant.path}/actions/close", made["key"], json=CLOSING)
    is_problem(closed, 403)


def test_a_token_signed_with_an_elliptic_curve_is_as_good(
    house: House, account: dict[str, str]
) -> None:
    claims = house.issuer.claims(house.now().timestamp(), aud=["https://api.example.com"])
    signed = jwt.encode(claims, ec_key(), "ES256", {"kid": "ec-1"})
    assert exchange(house, account, signed).status_code == 201


def test_what_is_left_of_a_subject_in_the_name(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    subject = f"repo:acme/größe:{'x' * 400}"
    trusted(house, tenant, account["id"], subject=subject)
    made = exchange(house, account, token(house, sub=subject)).json()
    assert made["name"] == f"repo:acme/gr??e:{'x' * 81}..."


def test_the_same_request_again_gets_the_same_key_for_a_minute(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    sent = {"service_account_id": account["id"], "token": token(house)}
    again: dict[str, Any] = {"json": sent, "headers": {"Idempotency-Key": account["id"]}}
    first = house.post(EXCHANGE, **again)
    assert house.post(EXCHANGE, **again).json() == first.json()
    other = house.post(EXCHANGE, address="198.51.100.9", **again)
    assert other.json()["id"] != first.json()["id"]
    changed = {**again, "json": {**sent, "scopes": []}}
    is_problem(house.post(EXCHANGE, **changed), 422, "idempotency_key_reused")
    house.pass_time(61)
    assert house.post(EXCHANGE, **again).json()["id"] != first.json()["id"]
    assert len(entries(house, tenant, "workload_identity.exchange")) == 3


# What may be trusted, and by whom.


def test_a_trust_is_listed_and_audited(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    (listed,) = house.get(trusts(tenant, account), tenant.key).json()["items"]
    assert listed["id"] == account["trust"]
    assert (listed["active"], listed["created_by"]) == (True, tenant.key_id)
    (entry,) = entries(house, tenant, "workload_identity.create")
    assert entry["target"] == account["trust"]
    assert entry["detail"] == {
        "service_account_id": account["id"],
        "name": "jobs",
        "issuer": house.issuer.url,
        "audience": "https://api.example.com",
        "subject": "repo:acme/shop:ref:refs/heads/main",
    }


def test_only_what_the_operator_allows_is_trusted(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    for issuer in (
        "http://169.254.169.254",
        "https://evil.example",
        f"{house.issuer.url}/",
        f"{house.issuer.url}@evil.example",
        "file:///etc/passwd",
    ):
        answer = house.post(trusts(tenant, account), tenant.key, json=body(house, issuer=issuer))
        is_problem(answer, 422)
        (error,) = answer.json()["errors"]
        assert error["pointer"] == "/issuer"
        assert error["message"].endswith(f"{GITHUB}, {house.issuer.url}")


@pytest.mark.parametrize(
    ("issuer", "subject"),
    [
        ("", "*"),
        ("", "repo:*/shop:ref:refs/heads/main"),
        ("", "repo:acme*/shop"),
        ("", "repo:acme:*"),
        (GITHUB, "ref:refs/heads/main"),
        (GITHUB, "ref:refs/*"),
        (GITHUB, "job_workflow_ref:acme/shop/.github/workflows/x.yml@refs/heads/main"),
        (GITHUB, "repo:*"),
    ],
)
def test_nobody_trusts_everybodys_jobs(
    house: House, tenant: Tenant, account: dict[str, str], issuer: str, subject: str
) -> None:
    sent = body(house, subject=subject, **({"issuer": issuer} if issuer else {}))
    answer = house.post(trusts(tenant, account), tenant.key, json=sent)
    is_problem(answer, 422)
    assert [one["pointer"] for one in answer.json()["errors"]] == ["/subject"]


@pytest.mark.parametrize("member", ["issuer", "audience", "subject", "name"])
def test_a_text_of_a_trust_is_one_line(
    house: House, tenant: Tenant, account: dict[str, str], member: str
) -> None:
    for text in ("", " a/b", "a/b\n", "a\x00b", "a/b\x1b[2J", "x" * 501, 7, None, ["a/b"]):
        sent: dict[str, Any] = {**body(house), member: text}
        is_problem(house.post(trusts(tenant, account), tenant.key, json=sent), 422)


def test_a_pattern_takes_the_branches_of_one_owner(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    trusted(house, tenant, account["id"], subject="repo:own/*:ref:refs/heads/release-*")
    good = token(house, sub="repo:own/shop:ref:refs/heads/release-7")
    assert exchange(house, account, good).status_code == 201
    for sub in ("repo:own/shop:ref:refs/heads/main", "repo:own2/shop:ref:refs/heads/release-7"):
        is_problem(exchange(house, account, token(house, sub=sub)), 403, "workload_not_trusted")


def test_nobody_gets_more_by_a_job_than_they_have(house: House, tenant: Tenant) -> None:
    manager = house.member(tenant.org_id, "member")
    managing = role(house, tenant, "service-accounts:write", name="manages accounts")
    assign(house, managing, tenant.key, manager.id)
    strong = create(house, tenant, name="strong", role="admin")
    trust = trusted(house, tenant, strong["id"])
    made = house.post(trusts(tenant, strong), manager.session, json=body(house))
    is_problem(made, 403, "role_exceeds_yours")
    gone = house.request("DELETE", f"{trusts(tenant, strong)}/{trust['id']}", manager.session)
    is_problem(gone, 403, "role_exceeds_yours")
    weak = create(house, tenant, name="weak")
    assert house.post(trusts(tenant, weak), manager.session, json=body(house)).status_code == 201


def test_who_has_a_second_factor_is_asked_for_it(house: House) -> None:
    tenant = house.tenant()
    enrolled(house, tenant.owner)
    account = create(house, tenant)
    session = house.session(tenant.owner.id)
    made = house.post(trusts(tenant, account), session, json=body(house))
    is_problem(made, 403, "mfa_required")


def test_another_organizations_is_not_there(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    other = house.tenant(plan="team")
    own = create(house, other)
    for path in (f"{other.path}/service-accounts/{account['id']}", path_of(other, own)):
        gone = house.request("DELETE", f"{path}/workload-identities/{account['trust']}", other.key)
        is_problem(gone, 404, "not_found")
    made = house.post(
        f"{other.path}/service-accounts/{account['id']}/workload-identities",
        other.key,
        json=body(house),
    )
    is_problem(made, 404, "not_found")
    assert exchange(house, account, token(house)).status_code == 201


def test_an_account_trusts_the_same_once_and_not_too_much(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    path = trusts(tenant, account)
    asked: Any = ("POST", path, tenant.key, {"json": body(house)})
    answers = house.together(*(asked for _ in range(8)))
    assert sorted(one.status_code for one in answers) == [201] + [409] * 7
    many = [
        ("POST", path, tenant.key, {"json": body(house, subject=f"a/{number}")})
        for number in range(20)
    ]
    answers = house.together(*many)
    assert sorted(one.status_code for one in answers) == [201] * 18 + [422] * 2
    assert len(house.get(path, tenant.key).json()["items"]) == 20


def test_a_trust_is_made_once_for_one_idempotency_key(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    again: dict[str, Any] = {"json": body(house), "headers": {"Idempotency-Key": account["id"]}}
    first, second = (house.post(trusts(tenant, account), tenant.key, **again) for _ in range(2))
    assert first.json() == second.json()


# What ends it.


def test_a_deleted_trust_ends_its_keys(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    other = trusted(house, tenant, account["id"], subject="other/*")
    admin = create(house, tenant, name="admin", role="admin")
    trust = trusted(house, tenant, admin["id"])
    made = exchange(house, admin, token(house)).json()
    until = (house.now() + timedelta(minutes=5)).isoformat().replace("+00:00", "Z")
    sent = {"name": "more", "role": "member", "expires_at": until}
    more = house.post(f"{tenant.path}/api-keys", made["key"], json=sent).json()
    kept = exchange(house, account, token(house, sub="other/x")).json()["key"]
    gone = house.request("DELETE", f"{trusts(tenant, admin)}/{trust['id']}", tenant.key)
    assert gone.status_code == 204
    for key in (made["key"], more["key"]):
        is_problem(house.get("/v1/me", key), 401)
    for key in (kept, account["key"], admin["key"]):
        assert house.get("/v1/me", key).status_code == 200
    is_problem(exchange(house, admin, token(house)), 403, "workload_not_trusted")
    is_problem(house.request("DELETE", f"{trusts(tenant, admin)}/{trust['id']}", tenant.key), 404)
    (entry,) = entries(house, tenant, "workload_identity.delete")
    assert entry["detail"]["api_keys_revoked"] == 2
    assert entry["detail"]["subject"] == "repo:acme/shop:ref:refs/heads/main"
    assert other["id"] != trust["id"]


def test_a_disabled_account_trusts_nothing(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    key = exchange(house, account, token(house)).json()["key"]
    assert house.post(f"{path_of(tenant, account)}/actions/disable", tenant.key).is_success
    is_problem(house.get("/v1/me", key), 401)
    assert house.get(trusts(tenant, account), tenant.key).json()["items"] == []
    is_problem(house.post(trusts(tenant, account), tenant.key, json=body(house)), 409, "conflict")
    (entry,) = entries(house, tenant, "service_account.disable")
    assert entry["detail"]["workload_identities_deleted"] == 1


def test_what_a_stolen_key_trusts_ends_with_it(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    """Whoever stole a key keeps nothing that they made with it."""
    stolen, key_id = house.key(tenant.org_id, tenant.owner, "owner")
    sent = body(house, subject="mallory/*")
    made = house.post(trusts(tenant, account), stolen, json=sent)
    assert made.status_code == 201
    job = token(house, sub="mallory/job", aud="here")
    key = exchange(house, account, job).json()
    assert key["created_by_key_id"] == key_id
    assert house.request("DELETE", f"{tenant.path}/api-keys/{key_id}", tenant.key).is_success
    is_problem(house.get("/v1/me", key["key"]), 401)
    is_problem(exchange(house, account, job), 403, "workload_not_trusted")
    listed = house.get(trusts(tenant, account), tenant.key).json()["items"]
    assert {one["id"]: one["active"] for one in listed} == {
        made.json()["id"]: False, account["trust"]: True,
    }  # fmt: skip


def test_a_trust_and_its_keys_outlive_no_key_that_made_it(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    short, key_id = house.key(tenant.org_id, tenant.owner, "owner")
    until = house.now() + timedelta(minutes=10)
    house.change_key(tenant.org_id, key_id, expires_at=until)
    made = house.post(trusts(tenant, account), short, json=body(house, subject="short/*"))
    assert made.status_code == 201
    job = token(house, sub="short/job", aud="here", exp=now(house, 3600))
    key = exchange(house, account, job).json()
    house.pass_time(601)
    is_problem(house.get("/v1/me", key["key"]), 401)
    is_problem(exchange(house, account, job), 403, "workload_not_trusted")


def test_keys_of_jobs_are_bounded_by_themselves(make_house: MakeHouse) -> None:
    house = make_house()
    tenant = house.tenant(plan="free")
    account = create(house, tenant)
    trusted(house, tenant, account["id"])
    text = token(house, exp=now(house, 9000))
    sent: Any = {"json": {"service_account_id": account["id"], "token": text}}
    for expected in ([201] * 50, [201] * 50, [201] * 50, [201] * 50, [422] * 5):
        answers = house.together(*(("POST", EXCHANGE, None, sent) for _ in expected))
        assert sorted(one.status_code for one in answers) == expected
    # What the plan allows is for others.
    another = {"name": "by hand", "role": "member"}
    assert house.post(f"{tenant.path}/api-keys", tenant.key, json=another).status_code == 201
    house.pass_time(3601)
    assert house.post(EXCHANGE, **sent).status_code == 201


def test_closing_the_organization_ends_it(
    house: House, tenant: Tenant, account: dict[str, str]
) -> None:
    key = exchange(house, account, token(house)).json()["key"]
    session = house.session(tenant.owner.id, mfa=True)
    assert house.post(f"{tenant.path}/actions/close", session, json=CLOSING).status_code == 202
    is_problem(house.get("/v1/me", key), 401)
    is_problem(exchange(house, account, token(house)), 403, "workload_not_trusted")


def test_an_issuer_that_is_allowed_no_more_is_trusted_no_more(
    house: House, account: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(house.services.settings), "oidc_issuers", (GITHUB,))
    is_problem(exchange(house, account, token(house)), 401, "token_refused")
