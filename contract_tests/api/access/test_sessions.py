"""People: signing in, the second factor, passwords, signing out."""

import logging
from collections.abc import Iterator, MutableMapping
from datetime import timedelta
from typing import Any

import pytest
import structlog
import structlog.testing

from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.api.rows import is_problem
from contract_tests.api.second_factor import CONFIRM, code, enrol, enrolled, wrong
from control.boundary import identity
from storage.access import sessions
from storage.access.sessions import UserSession

CHANGE = {"current_password": PASSWORD, "new_password": "staple-of-nine-oaks"}


@pytest.fixture
def person(house: House) -> Person:
    return house.person("Ada")


def sign_in(house: House, person: Person, **body: str) -> str:
    answer = house.post("/v1/sessions", json={"email": person.email, "password": PASSWORD, **body})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def test_signing_in_gives_a_token_that_works_until_signing_out(
    house: House, person: Person
) -> None:
    token = sign_in(house, person)
    me = house.get("/v1/me", token).json()
    assert me["user"]["email"] == person.email
    assert (me["kind"], me["assurance"], me["orgs"]) == ("session", "none", [])
    assert house.request("DELETE", "/v1/sessions/current", token).status_code == 204
    is_problem(house.get("/v1/me", token), 401)


def test_the_address_is_read_in_any_case(house: House, person: Person) -> None:
    body = {"email": person.email.upper(), "password": PASSWORD}
    assert house.post("/v1/sessions", json=body).status_code == 201


def test_a_refused_sign_in_does_not_say_what_was_wrong(house: House, person: Person) -> None:
    refused = [
        {"email": person.email, "password": "not it"},
        {"email": "nobody@example.org", "password": PASSWORD},
        {"email": person.email, "password": PASSWORD, "totp_code": "123456"},
    ]
    answers = [house.post("/v1/sessions", json=body) for body in refused]
    for answer in answers:
        is_problem(answer, 401, "sign_in_refused")
    assert len({answer.json()["detail"] for answer in answers}) == 1


@pytest.fixture
def warnings() -> Iterator[list[MutableMapping[str, Any]]]:
    """What is logged, also below what the tests of this room let through."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with structlog.testing.capture_logs() as logs:
        yield logs
    structlog.configure(**before)


def test_a_refused_sign_in_is_told_to_the_operator(
    house: House, person: Person, warnings: list[MutableMapping[str, Any]]
) -> None:
    bodies: list[dict[str, str]] = [
        {"email": person.email, "password": "hunter2-canary"},
        {"email": "canary@example.org", "password": "hunter2-canary"},
        {"email": person.email, "password": PASSWORD, "totp_code": "123456"},
    ]
    for body in bodies:
        house.post("/v1/sessions", json=body)
    told = [one for one in warnings if one["event"] == "sign_in.refused"]
    assert [(one["user_id"], one["wrong"]) for one in told] == [
        (person.id, "password"),
        (None, "address"),
        (person.id, "code"),
    ]
    assert {one["ip"] for one in told} == {"203.0.113.7"}
    assert "canary" not in str(warnings)


def test_sessions_are_listed_and_revoked_by_their_owner_only(house: House, person: Person) -> None:
    token = sign_in(house, person)
    listed = house.get("/v1/sessions", token).json()["items"]
    assert len(listed) == 2
    assert [one["current"] for one in listed] == [True, False]
    other = house.person()
    foreign = house.request("DELETE", f"/v1/sessions/{listed[1]['id']}", other.session)
    is_problem(foreign, 404)
    assert house.get("/v1/me", person.session).status_code == 200
    assert house.request("DELETE", f"/v1/sessions/{listed[1]['id']}", token).status_code == 204
    is_problem(house.get("/v1/me", person.session), 401)
    is_problem(house.request("DELETE", f"/v1/sessions/{listed[1]['id']}", token), 404)


def test_a_session_that_signed_in_just_now_enrols_without_the_password(
    house: House, person: Person
) -> None:
    assert house.post("/v1/me/totp", person.session, json={}).status_code == 201
    # A password that is sent is checked all the same.
    refused = house.post("/v1/me/totp", person.session, json={"password": "not it"})
    is_problem(refused, 403, "password_refused")


def test_an_older_session_is_asked_for_the_password(house: House, person: Person) -> None:
    ttl_s = house.services.settings.mfa_ttl_s
    with house.database.write() as db:
        session = sessions.by_token_hash(db, identity.token_sha256(person.session))
        assert session is not None
        session.created_at -= timedelta(seconds=ttl_s)
    refused = house.post("/v1/me/totp", person.session, json={})
    is_problem(refused, 403, "password_required")
    assert "15 minutes" in refused.json()["detail"]
    enrol(house, person)


def test_enrolling_takes_the_password_and_a_first_code(house: House, person: Person) -> None:
    refused = house.post("/v1/me/totp", person.session, json={"password": "not it"})
    is_problem(refused, 403, "password_refused")
    totp = enrol(house, person)
    assert house.get("/v1/me", person.session).json()["user"]["totp_enabled"] is False
    confirm = CONFIRM
    bad = house.post(confirm, person.session, json={"code": wrong(house, totp)})
    is_problem(bad, 403, "code_refused")
    confirmed = house.post(confirm, person.session, json={"code": code(house, totp)})
    assert confirmed.json()["assurance"] == "mfa"
    me = house.get("/v1/me", person.session).json()
    assert (me["user"]["totp_enabled"], me["assurance"]) == (True, "mfa")
    is_problem(house.post("/v1/me/totp", person.session, json={"password": PASSWORD}), 409)
    is_problem(house.post(confirm, person.session, json={"code": code(house, totp, 1)}), 409)


def test_a_code_works_once(house: House, person: Person) -> None:
    totp = enrol(house, person)
    used = code(house, totp)
    house.post(CONFIRM, person.session, json={"code": used})
    token = sign_in(house, person)
    step_up = "/v1/sessions/current/actions/step-up"
    is_problem(house.post(step_up, token, json={"code": used}), 403, "code_refused")
    fresh = code(house, totp, 1)
    stepped_up = house.post(step_up, token, json={"code": fresh})
    assert stepped_up.json()["assurance"] == "mfa"
    is_problem(house.post(step_up, token, json={"code": fresh}), 403)
    body = {"email": person.email, "password": PASSWORD, "totp_code": fresh}
    is_problem(house.post("/v1/sessions", json=body), 401)


@pytest.mark.every_database  # what locks is the database
def test_one_code_sent_twice_at_once_works_once(house: House, person: Person) -> None:
    totp = enrolled(house, person)
    tokens = [sign_in(house, person) for _ in range(4)]
    fresh = {"json": {"code": code(house, totp, 1)}}
    step_up = "/v1/sessions/current/actions/step-up"
    answers = house.together(*[("POST", step_up, token, dict(fresh)) for token in tokens])
    assert sorted(one.status_code for one in answers) == [200, 403, 403, 403]


def test_stepping_up_without_an_authenticator_is_a_conflict(house: House, person: Person) -> None:
    step_up = "/v1/sessions/current/actions/step-up"
    is_problem(house.post(step_up, person.session, json={"code": "123456"}), 409)


def test_the_second_factor_lapses_after_fifteen_minutes(make_house: MakeHouse) -> None:
    house = make_house()
    person = house.person(mfa=True)
    assert house.get("/v1/me", person.session).json()["assurance"] == "mfa"
    house.pass_time(899)
    assert house.get("/v1/me", person.session).json()["assurance"] == "mfa"
    house.pass_time(2)
    assert house.get("/v1/me", person.session).json()["assurance"] == "none"
    is_problem(house.request("DELETE", "/v1/me/totp", person.session), 403, "mfa_required")


def test_removing_the_authenticator_takes_every_sessions_mfa(house: House, person: Person) -> None:
    totp = enrolled(house, person)
    other = sign_in(house, person, totp_code=code(house, totp, 1))
    assert house.get("/v1/me", other).json()["assurance"] == "mfa"
    assert house.request("DELETE", "/v1/me/totp", person.session).status_code == 204
    assert house.get("/v1/me", other).json()["assurance"] == "none"
    assert house.get("/v1/me", person.session).json()["user"]["totp_enabled"] is False


def test_a_new_password_signs_out_every_other_session(house: House, person: Person) -> None:
    other = sign_in(house, person)
    refused = house.post("/v1/me/password", other, json={**CHANGE, "current_password": "no"})
    is_problem(refused, 403, "password_refused")
    assert house.post("/v1/me/password", other, json=CHANGE).status_code == 204
    assert house.get("/v1/me", other).status_code == 200
    is_problem(house.get("/v1/me", person.session), 401)
    old = {"email": person.email, "password": PASSWORD}
    is_problem(house.post("/v1/sessions", json=old), 401)
    new = {"email": person.email, "password": CHANGE["new_password"]}
    assert house.post("/v1/sessions", json=new).status_code == 201


def test_a_user_has_a_hundred_sessions_and_a_new_password_ends_them_all(
    house: House, person: Person
) -> None:
    """The 101st ends the oldest, of those without a second factor where there are any."""
    for number in range(150):
        house.session(person.id, mfa=number == 3)
    newest = sign_in(house, person)
    live = live_sessions(house, person)
    assert len(live) == 100
    assert sum(one.mfa_at is not None for one in live) == 1
    assert house.post("/v1/me/password", newest, json=CHANGE).status_code == 204
    assert len(live_sessions(house, person)) == 1


def live_sessions(house: House, person: Person) -> list[UserSession]:
    with house.database.read() as db:
        now = house.database.now(db)
        return sessions.page(db, person.id, now=now, limit=1000, after=None).items


def test_the_password_alone_takes_no_account_over(make_house: MakeHouse) -> None:
    """Whoever knows it neither replaces it nor ends the sessions that could."""
    house = make_house()
    person = house.person()
    totp = enrolled(house, person)
    own = house.get("/v1/me", person.session).json()["session_id"]
    thief = sign_in(house, person)
    is_problem(house.post("/v1/me/password", thief, json=CHANGE), 403, "mfa_required")
    is_problem(house.request("DELETE", f"/v1/sessions/{own}", thief), 403, "mfa_required")
    house.pass_time(901)  # also once the session is none with MFA any more
    is_problem(house.request("DELETE", f"/v1/sessions/{own}", thief), 403, "mfa_required")
    assert house.get("/v1/me", person.session).status_code == 200
    fresh = {"code": code(house, totp)}
    house.post("/v1/sessions/current/actions/step-up", person.session, json=fresh)
    assert house.post("/v1/me/password", person.session, json=CHANGE).status_code == 204
    is_problem(house.get("/v1/me", thief), 401)


def test_an_owner_without_a_code_at_hand_ends_what_the_password_alone_opened(
    house: House, person: Person
) -> None:
    totp = enrolled(house, person)
    thief, own = sign_in(house, person), sign_in(house, person)
    stolen = house.get("/v1/me", thief).json()["session_id"]
    assert house.request("DELETE", f"/v1/sessions/{stolen}", own).status_code == 204
    # Signing out takes nothing, and with the second factor any session can be ended.
    assert house.request("DELETE", "/v1/sessions/current", own).status_code == 204
    other = sign_in(house, person, totp_code=code(house, totp, 1))
    passed = house.get("/v1/me", other).json()["session_id"]
    assert house.request("DELETE", f"/v1/sessions/{passed}", person.session).status_code == 204


def test_without_an_authenticator_every_session_can_be_ended(house: House) -> None:
    person = house.person(mfa=True)
    own = house.get("/v1/me", person.session).json()["session_id"]
    assert house.request("DELETE", f"/v1/sessions/{own}", sign_in(house, person)).status_code == 204


def test_api_keys_outlive_a_password(house: House) -> None:
    """As programs use them; the document says so where the password is changed."""
    tenant = house.tenant()
    assert house.post("/v1/me/password", tenant.owner.session, json=CHANGE).status_code == 204
    assert house.get("/v1/me", tenant.key).status_code == 200
    described = house.get("/openapi.json").json()["paths"]["/v1/me/password"]["post"]
    assert "API keys stay valid" in described["description"]


def test_an_api_key_sees_itself_and_its_one_organization(house: House) -> None:
    tenant = house.tenant()
    house.tenant(owner=tenant.owner)
    me = house.get("/v1/me", tenant.key).json()
    assert (me["kind"], me["user"], me["api_key"]["id"]) == ("api_key", None, tenant.key_id)
    assert [one["id"] for one in me["orgs"]] == [tenant.org_id]
    assert [one["id"] for one in house.get("/v1/orgs", tenant.key).json()] == [tenant.org_id]
    assert len(house.get("/v1/orgs", tenant.owner.session).json()) == 2
