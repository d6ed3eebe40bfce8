"""What an organization asks of sessions, API keys and addresses holds from the next request on."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from contract_tests.api import letters
from contract_tests.api.harness import PASSWORD, House, Tenant
from contract_tests.api.rows import is_problem
from contract_tests.api.second_factor import code, enrolled
from storage.access.api_keys import ApiKey
from storage.access.sessions import UserSession

HOUR = 3600


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant(plan="team")


def change(house: House, tenant: Tenant, by: str | None = None, **values: Any) -> httpx.Response:
    return house.request("PATCH", tenant.path, by or tenant.key, json=values)


def are_older(house: House, tenant: Tenant, by_s: int) -> None:
    """The owner's sessions and the organization's keys were made so much earlier."""
    keys = select(ApiKey).where(ApiKey.org_id == tenant.org_id)
    signed_in = select(UserSession).where(UserSession.user_id == tenant.owner.id)
    with house.database.write() as db:
        for each in (*db.scalars(keys), *db.scalars(signed_in)):
            each.created_at -= timedelta(seconds=by_s)


def test_an_owner_says_what_the_organization_asks(house: House, tenant: Tenant) -> None:
    asked: dict[str, Any] = {
        "name": "Strict",
        "session_max_age_s": 43200,
        "api_key_max_age_s": 7776000,
        "allowed_email_domains": ["example.com"],
    }
    answer = change(house, tenant, **asked)
    assert answer.status_code == 200, answer.text
    assert {name: answer.json()[name] for name in asked} == asked
    assert house.get(tenant.path, tenant.key).json() == answer.json()
    path = f"{tenant.path}/audit?action=org.update"
    entry = house.get(path, tenant.key).json()["items"][0]
    assert entry["detail"] == {
        **asked,
        "allowed_email_domains": 1,
        "changes": {
            "name": {"from": "Org", "to": "Strict"},
            "session_max_age_s": {"from": None, "to": 43200},
            "api_key_max_age_s": {"from": None, "to": 7776000},
            "allowed_email_domains": {"from": None, "to": 1},
        },
    }
    nothing: dict[str, Any] = dict.fromkeys(
        ("session_max_age_s", "api_key_max_age_s", "allowed_email_domains")
    )
    assert change(house, tenant, **nothing).json()["session_max_age_s"] is None


def test_what_makes_no_sense_is_refused(house: House, tenant: Tenant) -> None:
    senseless: list[dict[str, Any]] = [
        {},
        {"session_max_age_s": 899},
        {"session_max_age_s": 10**12},
        {"api_key_max_age_s": 0},
        {"api_key_max_age_s": "1 day"},
        {"allowed_email_domains": []},
        {"allowed_email_domains": ["@example.com"]},
        {"allowed_email_domains": ["Example.com"]},
        {"allowed_email_domains": ["localhost"]},
        {"allowed_email_domains": ["a.b"] * 2},
        {"allowed_email_domains": [f"d{n}.example" for n in range(51)]},
        {"plan": "enterprise"},
        {"status": "closed"},
    ]
    for values in senseless:
        is_problem(change(house, tenant, **values), 422)


def test_only_those_who_may_change_the_organization_do(house: House, tenant: Tenant) -> None:
    other = house.tenant()
    is_problem(change(house, tenant, other.owner.session, session_max_age_s=HOUR), 404)
    for role in ("developer", "member", "auditor"):
        member = house.member(tenant.org_id, role)
        refused = change(house, tenant, member.session, session_max_age_s=HOUR)
        is_problem(refused, 403, "permission_missing")
    admin = house.member(tenant.org_id, "admin")
    assert change(house, tenant, admin.session, session_max_age_s=HOUR).status_code == 200


def test_whoever_enrolled_a_second_factor_needs_it(house: House, tenant: Tenant) -> None:
    totp = enrolled(house, tenant.owner)
    body = {"email": tenant.owner.email, "password": PASSWORD}
    weak = house.post("/v1/sessions", json=body).json()["token"]
    is_problem(change(house, tenant, weak, session_max_age_s=None), 403, "mfa_required")
    body["totp_code"] = code(house, totp, 1)
    strong = house.post("/v1/sessions", json=body).json()["token"]
    assert change(house, tenant, strong, session_max_age_s=None).status_code == 200


def test_only_who_has_passed_a_second_factor_asks_it_of_all(house: House, tenant: Tenant) -> None:
    """Else nobody may be able to take it back."""
    for caller in (tenant.key, tenant.owner.session):
        is_problem(change(house, tenant, caller, require_mfa=True), 403, "mfa_required")
    with_mfa = house.session(tenant.owner.id, mfa=True)
    assert change(house, tenant, with_mfa, require_mfa=True).json()["require_mfa"] is True
    for caller in (tenant.key, tenant.owner.session):
        is_problem(change(house, tenant, caller, require_mfa=False), 403, "mfa_required")
    assert change(house, tenant, with_mfa, require_mfa=False).json()["require_mfa"] is False


def test_an_old_session_is_asked_to_sign_in_again(house: House, tenant: Tenant) -> None:
    owner = tenant.owner
    elsewhere = house.tenant(owner=owner)
    assert change(house, tenant, session_max_age_s=HOUR).status_code == 200
    are_older(house, tenant, HOUR - 60)
    assert house.get(tenant.path, owner.session).status_code == 200
    are_older(house, tenant, 60)
    for method, path in (
        ("GET", tenant.path),
        ("GET", f"{tenant.path}/projects"),
        ("PATCH", tenant.path),
        ("POST", f"{tenant.path}/invites"),
    ):
        refused = house.request(method, path, owner.session, json={"name": "x"})
        is_problem(refused, 403, "session_too_old")
        assert "sign in again" in refused.json()["detail"]
    # Elsewhere it acts as before, and says who is signed in; keys are not asked.
    assert house.get(elsewhere.path, owner.session).status_code == 200
    assert house.get("/v1/me", owner.session).status_code == 200
    assert house.get(tenant.path, tenant.key).status_code == 200
    body = {"email": owner.email, "password": PASSWORD}
    anew = house.post("/v1/sessions", json=body).json()["token"]
    assert house.get(tenant.path, anew).status_code == 200


def test_it_holds_on_the_next_request_of_a_session_in_use(house: House, tenant: Tenant) -> None:
    session = tenant.owner.session
    assert house.get(tenant.path, session).status_code == 200
    are_older(house, tenant, HOUR)
    assert house.get(tenant.path, session).status_code == 200
    assert change(house, tenant, session_max_age_s=HOUR).status_code == 200
    is_problem(house.get(tenant.path, session), 403, "session_too_old")
    assert change(house, tenant, session_max_age_s=None).status_code == 200
    assert house.get(tenant.path, session).status_code == 200


def test_an_old_session_does_not_get_a_stored_answer(house: House, tenant: Tenant) -> None:
    headers = {"Idempotency-Key": "one"}
    path, session = f"{tenant.path}/projects", tenant.owner.session
    first = house.post(path, session, json={"name": "Shop"}, headers=headers)
    assert first.status_code == 201
    are_older(house, tenant, HOUR)
    change(house, tenant, session_max_age_s=HOUR)
    again = house.post(path, session, json={"name": "Shop"}, headers=headers)
    is_problem(again, 403, "session_too_old")


def test_an_old_key_does_nothing_more(house: House, tenant: Tenant) -> None:
    are_older(house, tenant, HOUR)
    by = tenant.owner.session
    assert change(house, tenant, by, api_key_max_age_s=HOUR + 600).status_code == 200
    assert house.get(tenant.path, tenant.key).status_code == 200
    assert change(house, tenant, by, api_key_max_age_s=HOUR).status_code == 200
    is_problem(house.get(tenant.path, tenant.key), 403, "api_key_too_old")
    is_problem(change(house, tenant, api_key_max_age_s=None), 403, "api_key_too_old")
    assert house.get(tenant.path, by).status_code == 200


def test_new_keys_end_in_time(house: House, tenant: Tenant) -> None:
    by, path = tenant.owner.session, f"{tenant.path}/api-keys"
    change(house, tenant, by, api_key_max_age_s=HOUR)

    def create(**values: Any) -> httpx.Response:
        return house.post(path, by, json={"name": "ci", **values})

    late = (house.now() + timedelta(seconds=HOUR + 60)).isoformat()
    for values in ({}, {"expires_at": None}, {"expires_at": late}):
        refused = create(**values)
        is_problem(refused, 422)
        assert refused.json()["errors"][0]["pointer"] == "/expires_at"
        assert "api_key_max_age_s" in refused.json()["detail"]
    in_time = (house.now() + timedelta(seconds=HOUR - 60)).isoformat()
    assert create(expires_at=in_time).status_code == 201


def test_invites_go_to_allowed_domains_only(house: House, tenant: Tenant) -> None:
    waiting = letters.invite(house, tenant, "late@example.net")
    person = house.person()
    theirs = letters.invite(house, tenant, person.email)
    change(house, tenant, allowed_email_domains=["example.com"])
    for email in ("grace@example.net", "grace@mail.example.com"):
        body = {"email": email, "role": "member"}
        refused = house.post(f"{tenant.path}/invites", tenant.key, json=body)
        is_problem(refused, 422)
        assert refused.json()["errors"][0]["pointer"] == "/email"
        assert "example.com" in refused.json()["detail"]
    assert letters.invite(house, tenant, "Grace@EXAMPLE.com")
    # Those who were invited before are held to it, and those who are members stay.
    account = {"invite_token": waiting, "name": "Late", "password": PASSWORD}
    is_problem(house.post("/v1/users", json=account), 403, "email_domain_refused")
    accept = f"/v1/invites/{theirs}/accept"
    assert not person.email.endswith("@example.com")
    is_problem(house.post(accept, person.session), 403, "email_domain_refused")
    assert house.get(tenant.path, tenant.owner.session).status_code == 200
    change(house, tenant, allowed_email_domains=None)
    assert house.post(accept, person.session).status_code == 200
