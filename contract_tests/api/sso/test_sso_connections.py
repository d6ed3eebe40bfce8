"""SSO connections: made of either protocol, changed, disabled and removed, and who may do so."""

import os
from typing import Any

import httpx
import pytest

from contract_tests.api.harness import House, Tenant
from contract_tests.api.second_factor import enrolled
from contract_tests.api.sso.with_oidc import (
    audited,
    client,
    connected,
    new_domain,
    owning,
    sign_in,
    signed_in,
)
from contract_tests.sso_provider import CLIENT_SECRET, SsoProvider
from control.policy.quotas import SSO_CONNECTIONS_MAX
from storage.access import organizations
from storage.access.users import User
from storage.sso import domains
from storage.sso.connections import SsoConnection

Json = dict[str, Any]


def path_of(tenant: Tenant, connection: Json | None = None) -> str:
    return f"{tenant.path}/sso/connections" + (f"/{connection['id']}" if connection else "")


def change(house: House, tenant: Tenant, connection: Json, by: str = "", **body: Any) -> Any:
    by = by or tenant.owner.session
    return house.request("PATCH", path_of(tenant, connection), by, json=body)


def refused_at(answer: httpx.Response) -> str:
    assert answer.status_code == 422, answer.text
    return str(answer.json()["errors"][0]["pointer"])


def test_a_connection_is_made_shown_and_its_secret_is_not(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    made = connected(house, tenant, provider, name="Mine", default_role="auditor")
    assert made["status"] == "active"
    assert made["kind"] == "oidc"
    assert made["highest_role"] == "owner"
    assert made["attribute_mapping"] == {"email": "email", "name": "name", "groups": "groups"}
    assert made["oidc"]["redirect_uri"] == "http://127.0.0.1:8080/account/sso/callback"
    assert made["sign_in_url"] == f"http://127.0.0.1:8080/account/sso/{made['id']}"
    shown = house.get(path_of(tenant, made), tenant.owner.session)
    listed = house.get(path_of(tenant), tenant.owner.session)
    assert shown.json() == made
    assert listed.json()["items"] == [made]
    assert CLIENT_SECRET not in shown.text + listed.text
    with house.database.read() as db:
        sealed = db.get_one(SsoConnection, made["id"]).secrets_sealed
    assert sealed is not None
    assert CLIENT_SECRET.encode() not in sealed
    told = audited(house, tenant, "sso_connection.create")[0]
    assert told["detail"] == {
        "kind": "oidc",
        "issuer": provider.url,
        "default_role": "auditor",
    }


def test_a_saml_connection_waits_for_its_first_sign_in(house: House) -> None:
    tenant = house.tenant()
    body = {"name": "Okta", "saml": {"signs_requests": True}}
    made = house.post(path_of(tenant), tenant.owner.session, json=body).json()
    assert (made["kind"], made["status"]) == ("saml", "pending_verification")
    assert made["oidc"] is None
    assert made["saml"]["signs_requests"] is True
    assert made["saml"]["identity_provider"] is None
    assert made["saml"]["service_provider"]["acs_url"].endswith(f"/account/sso/{made['id']}/acs")
    begun = house.post("/v1/sso/sign-ins", json={"connection_id": made["id"]})
    assert (begun.status_code, begun.json()["code"]) == (409, "saml_metadata_missing")
    assert refused_at(change(house, tenant, made, saml={"metadata_xml": "<x/>"})) == (
        "/saml/metadata_xml"
    )


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"oidc": {"issuer": "http://127.0.0.1:9"}, "saml": {}}, ""),
        ({"oidc": {"issuer": "http://127.0.0.1:9"}}, "/oidc/client_id"),
        ({"oidc": {"issuer": "ftp://x", "client_id": "a", "client_secret": "b"}}, "/oidc/issuer"),
        ({"oidc": {"scopes": ["email"], "client_id": "a"}}, "/oidc/scopes"),
        (
            {"saml": {"metadata_url": "http://127.0.0.1:9/", "metadata_xml": "x"}},
            "/saml/metadata_xml",
        ),
        ({"saml": {}, "default_role": "owner"}, "/default_role"),
        ({"saml": {}, "default_role": "role_01ARZ3NDEKTSV4RRFFQ69G5FAV"}, "/default_role"),
        ({"saml": {}, "status": "active"}, "/status"),
        ({"saml": {}, "highest_role": "owner"}, "/highest_role"),
        ({"saml": {}, "org_id": "org_01ARZ3NDEKTSV4RRFFQ69G5FAV"}, "/org_id"),
    ],
)
def test_what_is_wrong_of_a_connection_is_said(house: House, body: Json, pointer: str) -> None:
    tenant = house.tenant()
    answer = house.post(path_of(tenant), tenant.owner.session, json={"name": "x", **body})
    assert refused_at(answer) == pointer, answer.text
    assert house.get(path_of(tenant), tenant.owner.session).json()["items"] == []


WRONG: dict[str, Json] = {
    "names another issuer": {"issuer": "https://another.example.com"},
    "no token_endpoint": {"token_endpoint": None},
    "authorization_endpoint must begin with https": {"authorization_endpoint": "http://a.example"},
    "jwks_uri must be a URL": {"jwks_uri": "file:///etc/passwd"},
    "none of": {"id_token_signing_alg_values_supported": ["HS256", "none"]},
    "takes neither": {"token_endpoint_auth_methods_supported": ["private_key_jwt"]},
    "authorization code": {"response_types_supported": ["id_token"]},
    "status 400": {"jwks_uri": "http://127.0.0.1:{port}/nowhere"},
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_of_a_provider_is_said(
    house: House, provider: SsoProvider, words: str
) -> None:
    tenant = house.tenant()
    port = provider.url.rpartition(":")[2]
    provider.changed = {
        name: value.replace("{port}", port) if isinstance(value, str) else value
        for name, value in WRONG[words].items()
    }
    body = {"name": "x", "oidc": client(provider)}
    answer = house.post(path_of(tenant), tenant.owner.session, json=body)
    assert refused_at(answer) == "/oidc/issuer"
    assert words in answer.json()["detail"]


@pytest.mark.parametrize(
    "issuer",
    [
        "http://169.254.169.254",
        "https://10.0.0.1",
        "https://[::ffff:127.0.0.1]",
        "https://user:secret@example.com",
        "http://example.com",
        "https://0x7f.1",
    ],
)
def test_no_address_within_is_asked(house: House, issuer: str) -> None:
    """The guard itself is tried in contract_tests/delivery/test_guarded.py."""
    from control.delivery.dns_names import DnsNames  # noqa: PLC0415
    from control.delivery.receiver_urls import Reach  # noqa: PLC0415
    from control.sso.oidc import discovery  # noqa: PLC0415
    from control.sso.providers import GuardedProviders, ProviderUnavailable  # noqa: PLC0415

    assert house
    with pytest.raises(ProviderUnavailable, match="must"):
        discovery.discover(GuardedProviders(Reach(), DnsNames), issuer, whose="org")


def test_a_redirect_of_the_provider_is_not_followed(house: House, provider: SsoProvider) -> None:
    tenant = house.tenant()
    real = provider.told
    provider.told = lambda path, form: (302, b"") if "openid" in path else real(path, form)  # type: ignore[method-assign]
    body = {"name": "x", "oidc": client(provider)}
    answer = house.post(path_of(tenant), tenant.owner.session, json=body)
    assert "status 302" in answer.json()["detail"]


def test_a_connection_is_changed_member_by_member(house: House, provider: SsoProvider) -> None:
    tenant = house.tenant()
    made = connected(house, tenant, provider)
    renamed = change(house, tenant, made, name="Renamed", trusts_mfa=True).json()
    assert renamed == {**made, "name": "Renamed", "trusts_mfa": True}
    mapped = change(house, tenant, made, attribute_mapping={"email": "upn"}).json()
    assert mapped["attribute_mapping"]["email"] == "upn"
    assert refused_at(change(house, tenant, made, saml={})) == "/saml"

    rotated = change(house, tenant, made, oidc={"client_secret": "the next"})
    assert rotated.status_code == 200, rotated.text
    signed_in(house, made, provider, upn=f"a@{new_domain()}", amr=["mfa"])
    _, _, headers = next(one for one in provider.asked if one[0] == "/token")
    assert headers["Authorization"].endswith("OnRoZSUyMG5leHQ=")
    told = audited(house, tenant, "sso_connection.update")
    assert told[-1]["detail"]["changes"]["trusts_mfa"] == {"from": False, "to": True}
    assert "the next" not in str(told)


def test_another_issuer_is_another_provider(house: House, provider: SsoProvider) -> None:
    """Its subjects are other people, who happen to be called the same."""
    tenant, other = house.tenant(), SsoProvider()
    try:
        made = connected(house, tenant, provider)
        before = signed_in(house, made, provider, sub="1", email=f"a@{new_domain()}")
        user_id = house.get("/v1/me", before["token"]).json()["user"]["id"]
        assert change(house, tenant, made, oidc={"issuer": other.url}).status_code == 200
        assert house.get("/v1/me", before["token"]).status_code == 401
        after = signed_in(house, made, other, sub="1", email=f"b@{new_domain()}")
    finally:
        other.close()
    assert house.get("/v1/me", after["token"]).json()["user"]["id"] != user_id


def test_names_are_one_connections_and_connections_are_bounded(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    body = {"name": "One", "saml": {}}
    assert house.post(path_of(tenant), tenant.owner.session, json=body).status_code == 201
    again = house.post(path_of(tenant), tenant.owner.session, json=body)
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    for number in range(SSO_CONNECTIONS_MAX - 1):
        more = {"name": f"{number}", "saml": {}}
        assert house.post(path_of(tenant), tenant.owner.session, json=more).status_code == 201
    full = house.post(path_of(tenant), tenant.owner.session, json={"name": "x", "saml": {}})
    assert full.json()["errors"][0]["keyword"] == "quota"
    assert not provider.asked


def test_removing_a_connection_leaves_members_and_ends_its_sessions(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    made, kept = connected(house, tenant, provider), connected(house, tenant, provider)
    one = signed_in(house, made, provider, sub="1", email=f"a@{new_domain()}")
    two = signed_in(house, kept, provider, sub="2", email=f"b@{new_domain()}")
    gone = house.request("DELETE", path_of(tenant, made), tenant.owner.session)
    assert gone.status_code == 204
    assert house.get("/v1/me", one["token"]).status_code == 401
    assert house.get("/v1/me", two["token"]).status_code == 200
    members = house.get(f"{tenant.path}/members", tenant.owner.session).json()["items"]
    assert len(members) == 3
    assert audited(house, tenant, "sso_connection.delete")[0]["detail"]["sessions_ended"] == 1


def test_a_connection_that_a_domain_is_enforced_by_stays(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    made = connected(house, tenant, provider)
    domain = owning(house, tenant, new_domain())
    with house.database.write() as db:
        held = domains.holder(db, domain)
        assert held is not None
        held.connection_id, held.is_enforced = made["id"], True
        domains.note_enforced(db, organizations.fetch(db, tenant.org_id))
    disabled = change(house, tenant, made, status="disabled")
    removed = house.request("DELETE", path_of(tenant, made), tenant.owner.session)
    for answer in (disabled, removed):
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert domain in answer.json()["detail"]


def test_it_needs_the_second_factor_of_whoever_has_one(house: House, provider: SsoProvider) -> None:
    tenant = house.tenant()
    admin = house.member(tenant.org_id, "admin")
    enrolled(house, admin)
    stale = house.session(admin.id)
    for role in ("developer", "member", "auditor"):
        person = house.member(tenant.org_id, role)
        body = {"name": "x", "saml": {}}
        answer = house.post(path_of(tenant), person.session, json=body)
        assert answer.json()["code"] == "permission_missing", role
    answer = house.post(path_of(tenant), stale, json={"name": "x", "saml": {}})
    assert (answer.status_code, answer.json()["code"]) == (403, "mfa_required")
    assert not provider.asked


# Nobody raises themselves.


def with_address(house: House, user_id: str, email: str) -> None:
    with house.database.write() as db:
        db.get_one(User, user_id).email = email


def test_an_administrator_cannot_come_as_an_owner(house: House, provider: SsoProvider) -> None:
    """Who connects a provider decides who it says somebody is."""
    tenant, domain = house.tenant(), new_domain()
    owning(house, tenant, domain)
    with_address(house, tenant.owner.id, f"owner@{domain}")
    admin = house.member(tenant.org_id, "admin")
    body: Json = {"name": "x", "oidc": client(provider)}
    made = house.post(path_of(tenant), admin.session, json=body).json()
    assert made["highest_role"] == "admin"
    refused = sign_in(house, made, provider, sub="o", email=f"owner@{domain}")
    assert (refused.status_code, refused.json()["code"]) == (403, "sso_exceeds_connection")
    # Nothing is left of it, and people of the administrator's role and below come in.
    peer = house.member(tenant.org_id, "admin")
    with_address(house, peer.id, f"peer@{domain}")
    assert sign_in(house, made, provider, sub="p", email=f"peer@{domain}").status_code == 201

    saved = change(house, tenant, made, default_role="member").json()
    assert saved["highest_role"] == "owner"
    assert sign_in(house, made, provider, sub="o", email=f"owner@{domain}").status_code == 201

    provider.userinfo = {"sub": "o"}
    # Also of one whom it knows: the administrator could choose another client, or another claim.
    changed: list[dict[str, Any]] = [
        {"attribute_mapping": {"email": "x"}},
        {"oidc": {"client_secret": "mine"}},
    ]
    for settings in changed:
        assert change(house, tenant, made, admin.session, **settings).status_code == 200
        assert sign_in(house, made, provider, sub="o").status_code == 403
        change(house, tenant, made, attribute_mapping={})
    assert change(house, tenant, made, admin.session, name="Renamed").status_code == 200
    assert sign_in(house, made, provider, sub="o").status_code == 201


def test_nobody_lets_others_in_with_more_than_they_have(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    role = house.post(
        f"{tenant.path}/roles",
        tenant.owner.session,
        json={"name": os.urandom(4).hex(), "permissions": ["sso:read", "sso:write"]},
    )
    assert role.status_code == 201, role.text
    role = role.json()
    person = house.member(tenant.org_id, "member")
    given = house.post(
        f"{tenant.path}/roles/{role['id']}/assignments",
        tenant.owner.session,
        json={"user_id": person.id},
    )
    assert given.status_code == 201, given.text
    body = {"name": "x", "oidc": client(provider)}
    for wanted in ("admin", "developer"):
        answer = house.post(path_of(tenant), person.session, json={**body, "default_role": wanted})
        assert (answer.status_code, answer.json()["code"]) == (403, "role_exceeds_yours")
    made = house.post(path_of(tenant), person.session, json=body).json()
    assert (made["default_role"], made["highest_role"]) == ("member", "member")
    more = change(house, tenant, made, person.session, default_role="admin")
    assert more.json()["code"] == "role_exceeds_yours"


def test_a_key_lets_in_nobody_beyond_its_scopes(house: House, provider: SsoProvider) -> None:
    """An owner's key that can do little must not be worth an owner's session."""
    tenant = house.tenant()
    scoped, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=["sso:read", "sso:write"])
    body = {"name": "x", "oidc": client(provider)}
    refused = house.post(path_of(tenant), scoped, json=body)
    assert (refused.status_code, refused.json()["code"]) == (403, "role_exceeds_yours")
    made = connected(house, tenant, provider)
    changed = change(house, tenant, made, scoped, oidc={"client_secret": "mine"})
    assert changed.json()["code"] == "role_exceeds_yours"
    assert change(house, tenant, made, scoped, name="Renamed").status_code == 200
    whole = house.post(path_of(tenant), tenant.key, json=body)
    assert whole.json()["highest_role"] == "owner"


def test_a_custom_role_is_given_beside_member(house: House, provider: SsoProvider) -> None:
    tenant = house.tenant()
    role = house.post(
        f"{tenant.path}/roles",
        tenant.owner.session,
        json={"name": os.urandom(4).hex(), "permissions": ["audit:read"]},
    ).json()
    made = connected(house, tenant, provider, default_role=role["id"])
    opened = signed_in(house, made, provider, email=f"a@{new_domain()}")
    held = house.get(f"{tenant.path}/me/permissions", opened["token"]).text
    assert "audit:read" in held
    assert house.get(tenant.path, opened["token"]).json()["role"] == "member"
    house.request("DELETE", f"{tenant.path}/roles/{role['id']}", tenant.owner.session)
    later = signed_in(house, made, provider, sub="2", email=f"b@{new_domain()}")
    assert house.get(tenant.path, later["token"]).json()["role"] == "member"
