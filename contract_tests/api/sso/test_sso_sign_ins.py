"""Signing in by OpenID Connect: the way there and back, and who somebody is then."""

import os

import pytest

from contract_tests.api.harness import House
from contract_tests.api.sso.with_oidc import (
    SESSIONS,
    SIGN_INS,
    audited,
    begin,
    client,
    connected,
    new_domain,
    owning,
    returned,
    sign_in,
    signed_in,
)
from contract_tests.sso_provider import CLIENT_ID, SsoProvider
from storage.sso import sign_ins


def test_somebody_new_is_a_member_and_held_to_the_organization(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    connection = connected(house, tenant, provider, default_role="developer")
    email = f"ada@{new_domain()}"
    opened = signed_in(house, connection, provider, email=email)

    me = house.get("/v1/me", opened["token"]).json()
    assert me["user"]["email"] == email
    assert [(org["id"], org["role"]) for org in me["orgs"]] == [(tenant.org_id, "developer")]
    assert opened["assurance"] == "none"
    assert house.get(tenant.path, opened["token"]).status_code == 200
    added = audited(house, tenant, "sso.member_add")
    assert [one["detail"] for one in added] == [
        {"connection_id": connection["id"], "role": "developer"}
    ]
    told = audited(house, tenant, "session.create")[0]["detail"]
    assert told["connection_id"] == connection["id"]
    assert told["account_created"] is True


def test_the_way_there_has_all_that_binds_the_way_back(house: House, provider: SsoProvider) -> None:
    connection = connected(house, house.tenant(), provider)
    body = {"connection_id": connection["id"], "login_hint": "ada@example.com"}
    told = house.post(SIGN_INS, json=body).json()
    begun = begin(house, connection)

    assert told["redirect_url"].startswith(f"{provider.url}/authorize?")
    assert "login_hint=ada%40example.com" in told["redirect_url"]
    assert begun.query["response_type"] == "code"
    assert begun.query["client_id"] == CLIENT_ID
    assert begun.query["redirect_uri"] == "http://127.0.0.1:8080/account/sso/callback"
    assert begun.query["scope"] == "openid email profile"
    assert begun.query["code_challenge_method"] == "S256"
    assert len({begun.query[name] for name in ("state", "nonce", "code_challenge")}) == 3
    assert begun.browser_token not in told["redirect_url"]


def test_the_code_is_exchanged_with_secret_and_verifier(
    house: House, provider: SsoProvider
) -> None:
    connection = connected(house, house.tenant(), provider)
    signed_in(house, connection, provider, email=f"a@{new_domain()}")
    _, form, headers = next(one for one in provider.asked if one[0] == "/token")
    assert len(form["code_verifier"]) >= 43
    assert form["redirect_uri"] == "http://127.0.0.1:8080/account/sso/callback"
    # As RFC 6749 has it: encoded as a form first.
    assert headers["Authorization"] == (
        "Basic bWVuYWdlcmllLW9mLXRlc3RzOml0cyUzQXNlY3JldCUyMCUyNQ=="
    )
    assert "client_secret" not in form


def test_a_provider_that_takes_the_secret_in_the_form_gets_it_there(
    house: House, provider: SsoProvider
) -> None:
    provider.changed = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    connection = connected(house, house.tenant(), provider)
    signed_in(house, connection, provider, email=f"a@{new_domain()}")
    _, form, headers = next(one for one in provider.asked if one[0] == "/token")
    assert form["client_secret"] == "its:secret %"
    assert "Authorization" not in headers


def test_an_account_is_linked_by_a_verified_domain_alone(
    house: House, provider: SsoProvider
) -> None:
    tenant, person = house.tenant(), house.person("Grace")
    connection = connected(house, tenant, provider)
    domain = new_domain()
    with house.database.write() as db:
        from storage.access.users import User  # noqa: PLC0415

        db.get_one(User, person.id).email = f"grace@{domain}"

    refused = sign_in(house, connection, provider, sub="grace", email=f"Grace@{domain}")
    assert (refused.status_code, refused.json()["code"]) == (409, "sso_account_exists")
    assert domain in refused.json()["detail"]

    owning(house, tenant, domain)
    for unverified in (False, "false", 0, "yes"):
        refused = sign_in(
            house,
            connection,
            provider,
            sub="grace",
            email=f"grace@{domain}",
            email_verified=unverified,
        )
        assert refused.json()["code"] == "sso_account_exists", unverified

    opened = signed_in(house, connection, provider, sub="grace", email=f"GRACE@{domain}")
    assert house.get("/v1/me", opened["token"]).json()["user"]["id"] == person.id
    told = audited(house, tenant, "session.create")[0]["detail"]
    assert (told["account_created"], told["account_linked"]) == (False, True)


def test_who_is_known_stays_known_whatever_their_address_is_now(
    house: House, provider: SsoProvider
) -> None:
    connection = connected(house, house.tenant(), provider)
    first = signed_in(house, connection, provider, sub="s-1", email=f"a@{new_domain()}")
    again = signed_in(house, connection, provider, sub="s-1", email=f"b@{new_domain()}")
    other = signed_in(house, connection, provider, sub="s-2", email=f"c@{new_domain()}")
    who = [house.get("/v1/me", one["token"]).json()["user"]["id"] for one in (first, again, other)]
    assert who[0] == who[1] != who[2]


def test_the_same_subject_of_another_connection_is_somebody_else(
    house: House, provider: SsoProvider
) -> None:
    mine, theirs = house.tenant(), house.tenant()
    one = signed_in(
        house, connected(house, mine, provider), provider, sub="1", email=f"a@{new_domain()}"
    )
    other = signed_in(
        house, connected(house, theirs, provider), provider, sub="1", email=f"b@{new_domain()}"
    )
    users = {house.get("/v1/me", each["token"]).json()["user"]["id"] for each in (one, other)}
    assert len(users) == 2


def test_claims_are_read_by_the_names_that_the_connection_gives(
    house: House, provider: SsoProvider
) -> None:
    mapping = {"email": "upn", "name": "display name", "groups": "roles"}
    connection = connected(house, house.tenant(), provider, attribute_mapping=mapping)
    email = f"ada@{new_domain()}"
    claims = {"email": None, "upn": email, "display name": " Ada \u202e L. ", "roles": ["a", 7]}
    opened = signed_in(house, connection, provider, **claims)
    user = house.get("/v1/me", opened["token"]).json()["user"]
    assert (user["email"], user["name"]) == (email, "Ada  L.")


def test_what_the_token_lacks_is_asked_of_userinfo_and_of_nobody_else(
    house: House, provider: SsoProvider
) -> None:
    connection = connected(house, house.tenant(), provider)
    email = f"ada@{new_domain()}"
    provider.userinfo = {"sub": "another", "email": email}
    refused = sign_in(house, connection, provider, sub="me", email=None)
    assert (refused.status_code, refused.json()["code"]) == (401, "sso_refused")
    assert "somebody else" in refused.json()["detail"]

    provider.userinfo = {"sub": "me", "email": email, "email_verified": True, "amr": ["mfa"]}
    opened = signed_in(house, connection, provider, sub="me", email=None)
    assert house.get("/v1/me", opened["token"]).json()["user"]["email"] == email
    assert provider.asked[-1][2]["Authorization"] == "Bearer at-1"

    provider.userinfo = {"sub": "nobody"}
    nobody = sign_in(house, connection, provider, sub="nobody", email=None)
    assert (nobody.status_code, nobody.json()["code"]) == (403, "sso_email_missing")


@pytest.mark.parametrize("email", ["no address", "a@b", "a b@example.com", "x" * 250 + "@a.org"])
def test_what_is_no_address_lets_nobody_in(house: House, provider: SsoProvider, email: str) -> None:
    answer = sign_in(house, connected(house, house.tenant(), provider), provider, email=email)
    assert (answer.status_code, answer.json()["code"]) == (403, "sso_email_missing")


def test_a_service_account_is_nobody_to_come_as(house: House, provider: SsoProvider) -> None:
    tenant = house.tenant()
    made = house.post(
        f"{tenant.path}/service-accounts",
        tenant.owner.session,
        json={"name": os.urandom(4).hex(), "role": "developer"},
    )
    assert made.status_code == 201, made.text
    owning(house, tenant, f"{new_domain()}")
    email = f"{made.json()['id']}@service-accounts.invalid"
    answer = sign_in(house, connected(house, tenant, provider), provider, email=email)
    assert answer.status_code == 403


def test_a_second_factor_of_the_provider_counts_where_the_connection_says_so(
    house: House, provider: SsoProvider
) -> None:
    tenant, now = house.tenant(), int(house.now().timestamp())
    strict = connected(house, tenant, provider)
    trusting = connected(house, tenant, provider, trusts_mfa=True)
    email = {"sub": "a", "email": f"a@{new_domain()}"}

    def assurance(connection: dict[str, object], **claims: object) -> str:
        claims = {"sub": os.urandom(4).hex(), "email": f"a@{new_domain()}", **claims}
        return str(signed_in(house, connection, provider, **claims)["assurance"])

    assert signed_in(house, strict, provider, amr=["mfa"], **email)["assurance"] == "none"
    assert assurance(trusting, amr=["pwd"]) == "none"
    assert assurance(trusting, amr="mfa") == "none"
    assert assurance(trusting, amr=["pwd", "mfa"]) == "mfa"
    assert assurance(trusting, acr="phr") == "mfa"
    # One that was passed an hour ago is no fresh one.
    assert assurance(trusting, amr=["mfa"], auth_time=now - 3600) == "none"


def test_a_new_member_needs_a_seat_and_an_address_that_is_allowed(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant(plan="free")
    connection = connected(house, tenant, provider)
    house.change_org(tenant.org_id, allowed_email_domains=["allowed.example.com"])
    refused = sign_in(house, connection, provider, sub="x", email=f"x@{new_domain()}")
    assert (refused.status_code, refused.json()["code"]) == (403, "email_domain_refused")
    house.change_org(tenant.org_id, allowed_email_domains=None)

    for number in range(20):
        email = f"{number}@{new_domain()}"
        answer = sign_in(house, connection, provider, sub=f"{number}", email=email)
        if answer.status_code != 201:
            break
    assert (answer.status_code, answer.json()["code"]) == (402, "seat_limit")
    seats = house.get(f"{tenant.path}/members", tenant.owner.session).json()["seats"]
    assert seats["members"] == seats["limit"]


def test_a_sign_in_is_good_for_one_browser_once_and_for_ten_minutes(
    house: House, provider: SsoProvider
) -> None:
    connection = connected(house, house.tenant(), provider)

    def come(begun: object, **changed: object) -> int:
        token = provider.signed(provider.claims(begin_.nonce, email=f"a@{new_domain()}"))
        code = provider.gives(os.urandom(8).hex(), token)
        answer = house.post(SESSIONS, json=returned(begin_, code, **changed))
        assert answer.status_code in (201, 401), answer.text
        if answer.status_code == 401:
            assert answer.json()["code"] == "sso_refused"
        return answer.status_code

    begin_, other = begin(house, connection), begin(house, connection)
    assert come(begin_, browser_token=other.browser_token) == 401
    assert come(begin_, state=other.query["state"]) == 401
    assert come(begin_, state="guessed") == 401
    # What another browser tried has ended nothing.
    assert come(begin_) == 201
    assert come(begin_) == 401

    begin_ = begin(house, connection)
    house.pass_time(sign_ins.TTL_S)
    assert come(begin_) == 401


def test_a_code_that_the_provider_refuses_opens_nothing(
    house: House, provider: SsoProvider
) -> None:
    connection = connected(house, house.tenant(), provider)
    begun = begin(house, connection)
    answer = house.post(SESSIONS, json=returned(begun, "unknown"))
    assert (answer.status_code, answer.json()["code"]) == (401, "sso_refused")
    assert "invalid_grant" in answer.json()["detail"]


def test_an_answer_of_another_issuer_is_not_asked_about(
    house: House, provider: SsoProvider
) -> None:
    """Mix-up: the code of one provider would be sent to another."""
    connection = connected(house, house.tenant(), provider)
    begun = begin(house, connection)
    answer = house.post(SESSIONS, json=returned(begun, "c", iss="https://attacker.example.com"))
    assert (answer.status_code, answer.json()["code"]) == (401, "sso_refused")
    assert not [one for one in provider.asked if one[0] == "/token"]

    provider.changed = {"authorization_response_iss_parameter_supported": True}
    named = connected(house, house.tenant(), provider)
    without = begin(house, named)
    answer = house.post(SESSIONS, json=returned(without, "c"))
    assert "iss" in answer.json()["detail"]
    assert not [one for one in provider.asked if one[0] == "/token"]
    begun = begin(house, named)
    token = provider.signed(provider.claims(begun.nonce, email=f"a@{new_domain()}"))
    code = provider.gives("with-iss", token)
    assert house.post(SESSIONS, json=returned(begun, code, iss=provider.url)).status_code == 201


def test_a_connection_that_is_disabled_or_gone_lets_nobody_in(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    connection = connected(house, tenant, provider)
    path = f"{tenant.path}/sso/connections/{connection['id']}"
    begun, session = begin(house, connection), None
    session = signed_in(house, connection, provider, email=f"a@{new_domain()}")["token"]
    disabled = house.request("PATCH", path, tenant.owner.session, json={"status": "disabled"})
    assert disabled.json()["status"] == "disabled"
    assert house.get("/v1/me", session).status_code == 401
    there = house.post(SIGN_INS, json={"connection_id": connection["id"]})
    back = house.post(SESSIONS, json=returned(begun, "code"))
    for answer in (there, back):
        assert (answer.status_code, answer.json()["code"]) == (409, "sso_connection_disabled")

    house.request("PATCH", path, tenant.owner.session, json={"status": "active"})
    signed_in(house, connection, provider, email=f"a@{new_domain()}", sub="b")
    assert house.request("DELETE", path, tenant.owner.session).status_code == 204
    gone = house.post(SIGN_INS, json={"connection_id": connection["id"]})
    assert gone.status_code == 404


def test_a_changed_connection_does_not_finish_what_another_began(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    connection = connected(house, tenant, provider)
    begun = begin(house, connection)
    path = f"{tenant.path}/sso/connections/{connection['id']}"
    change = {"oidc": client(provider, client_id="another")}
    assert house.request("PATCH", path, tenant.owner.session, json=change).status_code == 200
    token = provider.signed(provider.claims(begun.nonce, email=f"a@{new_domain()}"))
    answer = house.post(SESSIONS, json=returned(begun, provider.gives("c", token)))
    assert (answer.status_code, answer.json()["code"]) == (401, "sso_refused")


def test_a_provider_that_does_not_answer_is_told_from_one_that_refuses(
    house: House, provider: SsoProvider
) -> None:
    connection = connected(house, house.tenant(), provider)
    begun = begin(house, connection)
    provider.codes["c"] = lambda _form: (200, b"<html>")
    answer = house.post(SESSIONS, json=returned(begun, "c"))
    assert (answer.status_code, answer.json()["code"]) == (503, "provider_unavailable")
    assert answer.headers["Retry-After"]
