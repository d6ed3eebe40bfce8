"""Passkeys: added, used and removed by their owner, and nothing for anybody else."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from contract_tests.api import second_factor
from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.api.rows import is_problem
from contract_tests.api.soft_authenticator import (
    BACKED_UP,
    ELIGIBLE,
    PRESENT,
    VERIFIED,
    Authenticator,
)
from contract_tests.api.with_passkeys import (
    OPTIONS,
    PASSKEYS,
    SIGN_IN,
    SIGN_IN_OPTIONS,
    STEP_UP,
    STEP_UP_OPTIONS,
    add,
    added,
    asked,
    sign_in,
    step_up,
)
from control.boundary.authenticators import base64url, site_of
from storage.access.passkeys import Passkey
from storage.events.audit import AuditEntry

PASSWORD_CHANGE = {"current_password": PASSWORD, "new_password": "staple-of-nine-oaks"}


@pytest.fixture
def person(house: House) -> Person:
    return house.person()


def me(house: House, session: str) -> Any:
    return house.get("/v1/me", session).json()


def audited(house: House, action: str, actor: str) -> list[dict[str, Any]]:
    with house.database.read() as db:
        rows = select(AuditEntry.detail).where(AuditEntry.action == action).order_by(AuditEntry.id)
        return list(db.scalars(rows.where(AuditEntry.actor_id == actor)))


def test_one_is_added_and_signs_in_as_a_second_factor(house: House, person: Person) -> None:
    maker = Authenticator()
    answer = add(house, person.session, maker)
    assert answer.status_code == 201, answer.text
    assert len(set(answer.json()["recovery_codes"])) == 10
    assert answer.json()["backed_up"] is True
    assert answer.headers["location"] == f"{PASSKEYS}/{answer.json()['id']}"
    house.settle()
    letter = house.letters.last
    assert (letter.to, letter.subject) == (person.email, "A passkey was added to your account")
    assert '"Phone"' in letter.text
    assert audited(house, "user.passkey.create", person.id) == [{"backed_up": True}]
    told = me(house, person.session)
    assert (told["user"]["passkeys"], told["assurance"]) == (1, "mfa")
    assert told["recovery_codes_left"] == 10

    answer = sign_in(house, maker)
    assert (answer.status_code, answer.json()["assurance"]) == (201, "mfa"), answer.text
    told = me(house, answer.json()["token"])
    assert (told["user"]["id"], told["assurance"]) == (person.id, "mfa")
    (listed,) = house.get(PASSKEYS, person.session).json()["items"]
    assert listed["last_used_at"] is not None


def test_options_say_what_is_asked_for(house: House, person: Person) -> None:
    maker = added(house, person)
    options = asked(house, OPTIONS, person.session)
    assert options["rp"] == {"id": "localhost", "name": "Menagerie"}
    assert options["user"]["id"] == base64url(person.id.encode())
    known = {"type": "public-key", "id": base64url(maker.credential_id)}
    assert options["excludeCredentials"] == [known]
    assert options["authenticatorSelection"]["userVerification"] == "required"
    assert options["attestation"] == "none"
    # Nobody learns by them who has passkeys.
    assert asked(house, SIGN_IN_OPTIONS)["allowCredentials"] == []
    assert asked(house, STEP_UP_OPTIONS, person.session)["allowCredentials"] == [known]
    is_problem(house.post(STEP_UP_OPTIONS, house.person().session), 409, "conflict")
    challenges = {asked(house, SIGN_IN_OPTIONS)["challenge"] for _ in range(20)}
    assert len(challenges) == 20


def test_a_passkey_is_a_second_factor_that_is_then_asked_for(house: House, person: Person) -> None:
    maker = added(house, person)
    tenant = house.tenant(owner=person)
    fresh = house.session(person.id)
    for path, body in (
        ("/v1/me/password", PASSWORD_CHANGE),
        ("/v1/me/totp", {"password": PASSWORD}),
        (OPTIONS, {"password": PASSWORD}),
        (f"{tenant.path}/api-keys", {"name": "k", "role": "developer"}),
    ):
        is_problem(house.post(path, fresh, json=body), 403, "mfa_required")
    members = house.get(f"{tenant.path}/members", fresh).json()["items"]
    assert [each["mfa_enabled"] for each in members if each["user_id"] == person.id] == [True]
    answer = step_up(house, fresh, maker)
    assert (answer.status_code, answer.json()["assurance"]) == (200, "mfa")
    assert house.post("/v1/me/totp", fresh, json={"password": PASSWORD}).status_code == 201


def test_a_session_of_before_does_not_confirm_an_app_of_its_own(
    house: House, person: Person
) -> None:
    """Who had a session and the password, and no passkey, would have made a second factor."""
    stolen = house.session(person.id)
    totp = second_factor.enrol(house, replace(person, session=stolen))
    added(house, person)
    body = {"code": second_factor.code(house, totp)}
    is_problem(house.post(second_factor.CONFIRM, stolen, json=body), 403, "mfa_required")


def test_recovery_codes_stand_in_for_a_passkey(house: House, person: Person) -> None:
    first, second, *_ = add(house, person.session, Authenticator()).json()["recovery_codes"]
    body = {"email": person.email, "password": PASSWORD, "totp_code": first}
    answer = house.post("/v1/sessions", json=body)
    assert answer.json()["assurance"] == "mfa"
    fresh = house.session(person.id)
    path = "/v1/sessions/current/actions/step-up"
    is_problem(house.post(path, fresh, json={"code": "123456"}), 409, "conflict")
    assert house.post(path, fresh, json={"code": second}).status_code == 200
    answer = add(house, fresh, Authenticator(), "Second")
    assert answer.json()["recovery_codes"] is None
    assert me(house, fresh)["recovery_codes_left"] == 8


def test_the_last_one_takes_the_second_factor_with_it(house: House, person: Person) -> None:
    maker, other = added(house, person), added(house, person)
    ids = [each["id"] for each in house.get(PASSKEYS, person.session).json()["items"]]
    weak = house.session(person.id)
    answer = house.request("DELETE", f"{PASSKEYS}/{ids[0]}", weak)
    is_problem(answer, 403, "mfa_required")
    for each in ids:
        answer = house.request("DELETE", f"{PASSKEYS}/{each}", person.session)
        assert answer.status_code == 204, answer.text
    is_problem(house.request("DELETE", f"{PASSKEYS}/{ids[0]}", person.session), 403, "mfa_required")
    told = me(house, person.session)
    assert (told["user"]["passkeys"], told["assurance"]) == (0, "none")
    assert told["recovery_codes_left"] is None
    assert audited(house, "user.passkey.delete", person.id) == [{"left": 1}, {"left": 0}]
    for each_maker in (maker, other):
        is_problem(sign_in(house, each_maker), 401, "sign_in_refused")
    assert house.post("/v1/me/password", weak, json=PASSWORD_CHANGE).status_code == 204


def test_an_app_that_is_left_stays_the_second_factor(house: House, person: Person) -> None:
    second_factor.enrolled(house, person)
    answer = add(house, person.session, Authenticator())
    assert answer.json()["recovery_codes"] is None
    answer = house.request("DELETE", f"{PASSKEYS}/{answer.json()['id']}", person.session)
    assert answer.status_code == 204
    told = me(house, person.session)
    assert (told["assurance"], told["recovery_codes_left"]) == ("mfa", 10)
    added(house, person)
    assert house.request("DELETE", "/v1/me/totp", person.session).status_code == 204
    told = me(house, person.session)
    assert (told["assurance"], told["recovery_codes_left"]) == ("mfa", 10)


def test_names_are_changed_by_their_owner_alone(house: House, person: Person) -> None:
    added(house, person)
    (listed,) = house.get(PASSKEYS, person.session).json()["items"]
    path, body = f"{PASSKEYS}/{listed['id']}", {"name": "Key ring"}
    stranger = house.person(mfa=True)
    is_problem(house.request("PATCH", path, stranger.session, json=body), 404)
    is_problem(house.request("DELETE", path, stranger.session), 404)
    assert house.get(PASSKEYS, stranger.session).json()["items"] == []
    assert house.request("PATCH", path, person.session, json=body).json()["name"] == "Key ring"
    for wrong in ("", " x", "a\u202eb", "x" * 101):
        answer = house.request("PATCH", path, person.session, json={"name": wrong})
        is_problem(answer, 422)


def test_an_old_session_sends_the_password_for_the_first_one(house: House) -> None:
    person = house.person()
    house.pass_time(1_000)
    is_problem(house.post(OPTIONS, person.session, json={}), 403, "password_required")
    body = {"password": "wrong"}
    is_problem(house.post(OPTIONS, person.session, json=body), 403, "password_refused")
    assert house.post(OPTIONS, person.session, json={"password": PASSWORD}).status_code == 200


def test_nobody_has_more_than_twenty(house: House, person: Person) -> None:
    makers = [Authenticator() for _ in range(22)]
    made = [(one, one.create(asked(house, OPTIONS, person.session))) for one in makers[:1]]
    body = {"name": "First", "credential": made[0][1]}
    assert house.post(PASSKEYS, person.session, json=body).status_code == 201
    options = [asked(house, OPTIONS, person.session) for _ in makers[1:]]
    answers = house.together(
        *(
            (
                "POST",
                PASSKEYS,
                person.session,
                {"json": {"name": f"No. {n}", "credential": maker.create(told)}},
            )
            for n, (maker, told) in enumerate(zip(makers[1:], options, strict=True))
        )
    )
    statuses = [answer.status_code for answer in answers]
    assert sorted(statuses) == [201] * 19 + [422] * 2
    assert me(house, person.session)["user"]["passkeys"] == 20
    is_problem(house.post(OPTIONS, person.session, json={}), 422)


def test_a_counter_goes_up_or_nobody_is_let_in(house: House, person: Person) -> None:
    """One that goes back is of a copy; the passkey that is ahead stays good."""
    maker = added(house, person, Authenticator(counter=5))
    for counter, status in ((7, 201), (7, 401), (6, 401), (0, 401), (8, 201)):
        maker.counter = counter
        assert sign_in(house, maker).status_code == status, counter
    maker.counter = 2**32 - 1
    assert sign_in(house, maker).status_code == 201
    silent = added(house, house.person())
    assert [sign_in(house, silent).status_code for _ in range(2)] == [201, 201]


def test_what_a_passkey_says_of_copies_is_kept(house: House, person: Person) -> None:
    maker = added(house, person, Authenticator(flags=PRESENT | VERIFIED | ELIGIBLE))
    (listed,) = house.get(PASSKEYS, person.session).json()["items"]
    assert listed["backed_up"] is False
    maker.flags |= BACKED_UP
    assert sign_in(house, maker).status_code == 201
    (listed,) = house.get(PASSKEYS, person.session).json()["items"]
    assert listed["backed_up"] is True


def test_an_api_key_has_no_passkeys(house: House) -> None:
    key = house.tenant().key
    for path in (PASSKEYS, OPTIONS, STEP_UP, STEP_UP_OPTIONS):
        body: Any = {"name": "x", "credential": {}} if path == PASSKEYS else {}
        assert house.post(path, key, json=body).status_code in {403, 422}, path
    is_problem(house.get(PASSKEYS, key), 403, "session_required")


def test_a_repeated_request_is_one_session(house: House, person: Person) -> None:
    maker = added(house, person)
    options: dict[str, Any] = {
        "json": {"credential": maker.get(asked(house, SIGN_IN_OPTIONS))},
        "headers": {"Idempotency-Key": "signing-in-with-a-passkey"},
    }
    first = house.post(SIGN_IN, **options)
    again = house.post(SIGN_IN, **{**options, "headers": dict(options["headers"])})
    assert first.json() == again.json()
    house.pass_time(61)
    is_problem(house.post(SIGN_IN, **options), 401, "sign_in_refused")


def test_no_public_key_is_shown(house: House, person: Person) -> None:
    maker = added(house, person)
    shown = house.get(PASSKEYS, person.session).text
    with house.database.read() as db:
        kept = db.scalars(select(Passkey).where(Passkey.user_id == person.id)).one()
    assert base64url(maker.credential_id) == kept.credential_id
    assert kept.credential_id not in shown


@pytest.mark.parametrize(
    ("base_url", "site"),
    [
        ("http://127.0.0.1:8080", ("localhost", "http://localhost:8080")),
        ("http://localhost", ("localhost", "http://localhost")),
        ("http://[::1]:8080", ("localhost", "http://localhost:8080")),
        ("http://api.localhost:80", ("api.localhost", "http://api.localhost")),
        ("https://API.example.com/", ("api.example.com", "https://api.example.com")),
        ("https://example.com:443/db", ("example.com", "https://example.com")),
        ("https://example.com:8443", ("example.com", "https://example.com:8443")),
        ("http://example.com", None),
        ("http://localhost.example.com", None),
        ("https://192.0.2.1", None),
        ("https://[2001:db8::1]:8443", None),
    ],
)
def test_passkeys_are_for_the_host_of_the_service(
    base_url: str, site: tuple[str, str] | None
) -> None:
    found = site_of(base_url)
    assert (found and (found.id, found.origin)) == site


def test_where_browsers_make_none_the_service_says_so(
    house: House, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(house.services.settings, base_url="http://db.example.com")
    monkeypatch.setitem(house.services.__dict__, "settings", settings)
    for path, token in ((SIGN_IN_OPTIONS, None), (OPTIONS, person.session)):
        options: dict[str, Any] = {"json": {}} if path == OPTIONS else {}
        is_problem(house.post(path, token, **options), 409, "passkeys_unavailable")
