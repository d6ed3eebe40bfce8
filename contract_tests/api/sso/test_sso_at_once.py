"""What happens to sign-ins that come at the same moment: each thing once, and nothing in part."""

import os
from typing import Any

import pytest

from contract_tests.api.harness import House
from contract_tests.api.sso.with_oidc import (
    SESSIONS,
    SIGN_INS,
    audited,
    begin,
    connected,
    new_domain,
    returned,
    signed_in,
)
from contract_tests.sso_provider import SsoProvider
from control.sso import providers
from storage.sso.sign_ins import PER_PLACE_MAX, SsoSignIn


def coming(house: House, connection: dict[str, Any], provider: SsoProvider, **claims: Any) -> Any:
    """A request that completes a sign-in of its own."""
    begun = begin(house, connection)
    token = provider.signed(provider.claims(begun.nonce, **claims))
    code = provider.gives(os.urandom(8).hex(), token)
    return ("POST", SESSIONS, None, {"json": returned(begun, code)})


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """More wait for a provider at once than is allowed otherwise."""
    monkeypatch.setattr(providers, "OF_ONE_MAX", 100)
    monkeypatch.setattr(providers, "AT_ONCE_MAX", 100)


@pytest.mark.usefixtures("patient")
def test_a_code_that_is_sent_20_times_at_once_opens_one_session(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    request = coming(house, connected(house, tenant, provider), provider, email="a@example.net")
    answers = house.together(*[request] * 20)
    assert sorted(one.status_code for one in answers) == [201] + [401] * 19
    assert [one[0] for one in provider.asked].count("/token") == 1
    assert len(audited(house, tenant, "session.create")) == 1


@pytest.mark.usefixtures("patient")
def test_one_who_arrives_several_times_at_once_is_one_member(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    connection = connected(house, tenant, provider)
    claims = {"sub": "new", "email": f"new@{new_domain()}"}
    answers = house.together(*[coming(house, connection, provider, **claims) for _ in range(5)])
    assert [one.status_code for one in answers] == [201] * 5
    who = {house.get("/v1/me", one.json()["token"]).json()["user"]["id"] for one in answers}
    assert len(who) == 1
    assert len(audited(house, tenant, "sso.member_add")) == 1


@pytest.mark.usefixtures("patient")
def test_the_last_seat_is_taken_by_one_of_many(house: House, provider: SsoProvider) -> None:
    tenant = house.tenant(plan="free")
    connection = connected(house, tenant, provider)
    seats = house.get(f"{tenant.path}/members", tenant.owner.session).json()["seats"]
    left = seats["limit"] - seats["members"]
    requests = [
        coming(house, connection, provider, sub=f"{number}", email=f"{number}@{new_domain()}")
        for number in range(left + 4)
    ]
    answers = house.together(*requests)
    assert sorted(one.status_code for one in answers) == [201] * left + [402] * 4
    seats = house.get(f"{tenant.path}/members", tenant.owner.session).json()["seats"]
    assert seats["members"] == seats["limit"]
    # Whom there was no seat for has no account either.
    gone = [one for one in answers if one.status_code == 402]
    assert all(one.json()["code"] == "seat_limit" for one in gone)


def test_a_slow_provider_holds_few_and_keeps_no_other_waiting(
    house: House, provider: SsoProvider
) -> None:
    other = SsoProvider()
    try:
        slow = connected(house, house.tenant(), provider)
        quick = connected(house, house.tenant(), other)
        requests = [
            coming(house, slow, provider, sub=f"{number}", email=f"{number}@{new_domain()}")
            for number in range(6)
        ]
        provider.slow_s = 0.5
        requests.append(coming(house, quick, other, email=f"a@{new_domain()}"))
        answers = house.together(*requests)
    finally:
        other.close()
    assert answers[-1].status_code == 201
    statuses = [one.status_code for one in answers[:-1]]
    assert statuses.count(503) >= 6 - providers.OF_ONE_MAX - 2
    assert set(statuses) == {201, 503}
    busy = next(one for one in answers if one.status_code == 503)
    assert busy.json()["code"] == "provider_busy"
    assert busy.headers["Retry-After"]


def test_a_crowd_at_one_address_pushes_out_its_own(house: House, provider: SsoProvider) -> None:
    connection = connected(house, house.tenant(), provider)
    mine = begin(house, connection, address="198.51.100.9")
    for _ in range(PER_PLACE_MAX + 3):
        begin(house, connection, address="198.51.100.10")
    with house.database.read() as db:
        rows = db.query(SsoSignIn).filter_by(connection_id=connection["id"]).all()
        assert sum(one.place == "198.51.100.10" for one in rows) == PER_PLACE_MAX
    token = provider.signed(provider.claims(mine.nonce, email=f"a@{new_domain()}"))
    answer = house.post(SESSIONS, json=returned(mine, provider.gives("c", token)))
    assert answer.status_code == 201


def test_a_full_connection_ends_the_oldest_of_the_address_with_the_most(
    house: House, provider: SsoProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    from storage.sso import sign_ins  # noqa: PLC0415

    monkeypatch.setattr(sign_ins, "PER_CONNECTION_MAX", 6)
    connection = connected(house, house.tenant(), provider)
    mine = begin(house, connection, address="198.51.100.9")
    for number in range(8):
        begin(house, connection, address=f"198.51.100.{20 + number % 2}")
    with house.database.read() as db:
        rows = db.query(SsoSignIn).filter_by(connection_id=connection["id"]).all()
        assert len(rows) == 6
        assert "198.51.100.9" in {one.place for one in rows}
    assert mine.browser_token


def test_the_same_key_again_gets_the_same_session(house: House, provider: SsoProvider) -> None:
    """The code is used up by then, and the provider not asked again."""
    connection = connected(house, house.tenant(), provider)
    method, path, _, options = coming(house, connection, provider, email=f"a@{new_domain()}")
    headers = {"Idempotency-Key": os.urandom(8).hex()}
    first = house.request(method, path, None, headers=headers, **options)
    again = house.request(method, path, None, headers=headers, **options)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["token"] == again.json()["token"]
    assert [one[0] for one in provider.asked].count("/token") == 1


def test_who_signs_in_again_finds_what_they_left(house: House, provider: SsoProvider) -> None:
    connection = connected(house, house.tenant(), provider)
    one = signed_in(house, connection, provider, sub="s", email=f"a@{new_domain()}")
    two = signed_in(house, connection, provider, sub="s")
    listed = house.get("/v1/sessions", two["token"]).json()["items"]
    assert {each["id"] for each in listed} == {one["id"], two["id"]}
    assert house.post(SIGN_INS, json={"connection_id": connection["id"]}).status_code == 201
