"""A session by single sign-on acts in its organization and nowhere else, whoever the person is."""

import os
from dataclasses import dataclass

import pytest

from contract_tests.api.access.test_guessing import attempt, crowd, strangers
from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.rows import NOBODY, OPERATIONS, estate, send
from contract_tests.api.sso.with_oidc import connected, new_domain, owning, signed_in
from contract_tests.sso_provider import SsoProvider
from control.boundary.windows import LibraryMeter, LocalWindows
from storage.access import enterprises, memberships
from storage.access.sessions import LIVE_MAX, UserSession
from storage.access.users import User


@dataclass(frozen=True)
class Shared:
    """Somebody who owns two organizations; `token` is a session by the provider of `mine`."""

    person: Person
    mine: Tenant
    other: Tenant
    token: str


@pytest.fixture
def shared(house: House, provider: SsoProvider) -> Shared:
    person, domain = house.person("Shared", mfa=True), new_domain()
    mine, other = house.tenant(owner=person), house.tenant(owner=person)
    owning(house, mine, domain)
    with house.database.write() as db:
        db.get_one(User, person.id).email = f"shared@{domain}"
    connection = connected(house, mine, provider, trusts_mfa=True)
    opened = signed_in(house, connection, provider, email=f"shared@{domain}", amr=["mfa"])
    return Shared(person, mine, other, opened["token"])


def test_it_sees_its_own_organization_and_no_other(house: House, shared: Shared) -> None:
    assert house.get(shared.mine.path, shared.token).json()["role"] == "owner"
    assert house.get(shared.other.path, shared.token).status_code == 404
    for path in ("/v1/orgs", "/v1/me"):
        told = house.get(path, shared.token)
        assert shared.mine.org_id in told.text
        assert shared.other.org_id not in told.text
    both = house.get("/v1/orgs", shared.person.session).text
    assert shared.other.org_id in both


def test_every_operation_of_another_organization_is_not_there(
    house: House, provider: SsoProvider
) -> None:
    """As for somebody who is no member: whatever the operation is, and whoever owns it."""
    found = estate(house, "Held")
    domain = new_domain()
    mine = house.tenant(owner=found.tenant.owner)
    owning(house, mine, domain)
    with house.database.write() as db:
        db.get_one(User, found.tenant.owner.id).email = f"owner@{domain}"
    token = signed_in(house, connected(house, mine, provider), provider, email=f"owner@{domain}")[
        "token"
    ]
    for operation in OPERATIONS:
        if "{org_id}" not in operation.path or not operation.security:
            continue
        answer = send(house, operation, found.ids, token)
        # Those for API keys alone say so of any session, in any organization.
        assert answer.status_code == 404, (operation.id, answer.text)


def test_it_changes_nothing_of_the_account(house: House, shared: Shared) -> None:
    refused = 0
    for operation in OPERATIONS:
        if operation.document["x-authorize"].get("sso") == "refused":
            answer = send(house, operation, NOBODY, shared.token)
            assert (answer.status_code, answer.json()["code"]) == (403, "sso_session"), operation.id
            refused += 1
    # Of an operation that says nothing, start-up says so (contract_tests/boundary/test_rules.py).
    assert refused >= 12


def test_it_makes_no_organization_and_joins_none(house: House, shared: Shared) -> None:
    made = house.post("/v1/orgs", shared.token, json={"name": "Elsewhere"})
    joined = house.post("/v1/invites/mi_x/accept", shared.token)
    for answer in (made, joined):
        assert (answer.status_code, answer.json()["code"]) == (403, "sso_session")


def test_it_attaches_no_other_organization(house: House, shared: Shared) -> None:
    house.change_org(shared.mine.org_id, plan="enterprise")
    with house.database.write() as db:
        enterprises.found(db, shared.mine.org_id, {})
    answer = house.post(
        f"{shared.mine.path}/enterprise/subsidiaries",
        shared.token,
        json={"org_id": shared.other.org_id},
    )
    assert (answer.status_code, answer.json()["code"]) == (403, "sso_session")


def test_it_sees_and_ends_no_session_but_those_of_its_organization(
    house: House, shared: Shared
) -> None:
    own = house.get("/v1/sessions", shared.token).json()["items"]
    assert [one["current"] for one in own] == [True]
    everything = house.get("/v1/sessions", shared.person.session).json()["items"]
    assert {one["id"] for one in everything} > {own[0]["id"]}
    others = next(one["id"] for one in everything if one["id"] != own[0]["id"])
    assert house.request("DELETE", f"/v1/sessions/{others}", shared.token).status_code == 404
    assert house.request("DELETE", "/v1/sessions/current", shared.token).status_code == 204


def test_a_provider_pushes_out_no_session_of_another_kind(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    connection = connected(house, tenant, provider)
    first = signed_in(house, connection, provider, email=f"a@{new_domain()}", sub="a")
    me = house.get("/v1/me", first["token"]).json()["user"]["id"]
    by_password = house.session(me)
    with house.database.write() as db:
        known = db.get_one(UserSession, first["id"])
        for _ in range(LIVE_MAX):
            db.add(
                UserSession(
                    id=f"ses_{os.urandom(13).hex().upper()}",
                    user_id=me,
                    token_hash=os.urandom(8).hex(),
                    prefix="ms_",
                    expires_at=known.expires_at,
                    sso_org_id=known.sso_org_id,
                    sso_connection_id=known.sso_connection_id,
                )
            )
    signed_in(house, connection, provider, sub="a")
    assert house.get("/v1/me", by_password).status_code == 200


def test_it_lets_nobody_guess_at_the_password(
    house: House, shared: Shared, provider: SsoProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each live session has tries of its own, and a provider can open any number of sessions."""
    email = house.get("/v1/me", shared.token).json()["user"]["email"]
    connection = house.get(f"{shared.mine.path}/sso/connections", shared.token).json()["items"][0]
    another = signed_in(house, connection, provider)["token"]
    monkeypatch.setattr(house.services.limiter, "_meter", LibraryMeter(LocalWindows()))
    crowd(house, email, 10, shared.token)
    place = next(strangers())
    assert 429 in [attempt(house, email, place, another).status_code for _ in range(5)]


def test_whoever_leaves_the_organization_is_out_at_once(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    connection = connected(house, tenant, provider)
    opened = signed_in(house, connection, provider, email=f"a@{new_domain()}")
    assert house.get(tenant.path, opened["token"]).status_code == 200
    user_id = house.get("/v1/me", opened["token"]).json()["user"]["id"]
    with house.database.write() as db:
        db.delete(memberships.fetch(db, tenant.org_id, user_id))
    assert house.get(tenant.path, opened["token"]).status_code == 404
