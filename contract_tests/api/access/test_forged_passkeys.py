"""What no passkey has signed, or not now, or not here: nobody is let in by it."""

from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import select

from contract_tests.api.harness import House, Person
from contract_tests.api.rows import is_problem
from contract_tests.api.soft_authenticator import (
    BACKED_UP,
    ELIGIBLE,
    PRESENT,
    VERIFIED,
    Authenticator,
    altered,
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
)
from control.boundary.authenticators import base64url
from storage.access.passkeys import UsedChallenge


@pytest.fixture
def person(house: House) -> Person:
    return house.person()


def me(house: House, session: str) -> Any:
    return house.get("/v1/me", session).json()


def wrong_answers(house: House, maker: Authenticator, options: dict[str, Any]) -> dict[str, Any]:
    """What somebody could send in place of what the passkey signs."""
    right = maker.get(options)
    other = Authenticator(user_handle=maker.user_handle)
    impostor = replace(maker, key=ec.generate_private_key(ec.SECP256R1()))
    response = right["response"]
    return {
        "another key": impostor.get(options),
        "an unknown id": other.get(options),
        "another origin": replace(maker, origin="https://localhost:8080").get(options),
        "another port": replace(maker, origin="http://localhost:80801").get(options),
        "another site": replace(maker, rp_id="evil.example").get(options),
        "nobody verified": replace(maker, flags=PRESENT | ELIGIBLE | BACKED_UP).get(options),
        "nobody present": replace(maker, flags=VERIFIED | ELIGIBLE | BACKED_UP).get(options),
        "another kind": replace(maker, flags=PRESENT | VERIFIED).get(options),
        "impossible flags": replace(maker, flags=PRESENT | VERIFIED | BACKED_UP).get(options),
        "a frame": replace(maker, client_data={"crossOrigin": True}).get(options),
        "a registration": replace(maker, client_data={"type": "webauthn.create"}).get(options),
        "a challenge of nobody": maker.get({**options, "challenge": base64url(b"x" * 60)}),
        "an altered challenge": maker.get({**options, "challenge": altered(options["challenge"])}),
        "a number as challenge": replace(maker, client_data={"challenge": 1}).get(options),
        "a list as client data": {
            **right,
            "response": {**response, "clientDataJSON": base64url(b"[]")},
        },
        "deep client data": {
            **right,
            "response": {**response, "clientDataJSON": base64url(b"[" * 6_000)},
        },
        "no client data": {**right, "response": {**response, "clientDataJSON": "AA"}},
        "an altered signature": {
            **right,
            "response": {**response, "signature": altered(response["signature"])},
        },
        "altered data": {
            **right,
            "response": {**response, "authenticatorData": altered(response["authenticatorData"])},
        },
        "no data": {**right, "response": {**response, "authenticatorData": "AA"}},
        "much data": {**right, "response": {**response, "authenticatorData": "A" * 4_000}},
        "two ids": {**right, "rawId": base64url(b"another")},
        "somebody else": {
            **right,
            "response": {**response, "userHandle": base64url(b"usr_somebody")},
        },
    }


def test_nothing_else_signs_in(house: House, person: Person) -> None:
    maker = added(house, person)
    options = asked(house, SIGN_IN_OPTIONS)
    for what, credential in wrong_answers(house, maker, options).items():
        answer = house.post(SIGN_IN, json={"credential": credential})
        assert answer.status_code == 401, what
        is_problem(answer, 401, "sign_in_refused")
    nameless = maker.get(options)
    del nameless["response"]["userHandle"]
    is_problem(house.post(SIGN_IN, json={"credential": nameless}), 401, "sign_in_refused")
    # What was wrong used nothing up, and left nothing.
    assert house.post(SIGN_IN, json={"credential": maker.get(options)}).status_code == 201


def test_nothing_else_steps_up(house: House, person: Person) -> None:
    maker, stranger = added(house, person), house.person()
    theirs = added(house, stranger)
    fresh = house.session(person.id)
    options = asked(house, STEP_UP_OPTIONS, fresh)
    for what, credential in wrong_answers(house, maker, options).items():
        answer = house.post(STEP_UP, fresh, json={"credential": credential})
        assert answer.status_code == 403, what
        is_problem(answer, 403, "passkey_refused")
    # Another's passkey, signed rightly.
    answer = house.post(STEP_UP, fresh, json={"credential": theirs.get(options)})
    is_problem(answer, 403, "passkey_refused")
    assert me(house, fresh)["assurance"] == "none"
    nameless = maker.get(options)
    del nameless["response"]["userHandle"]
    answer = house.post(STEP_UP, fresh, json={"credential": nameless})
    assert answer.status_code == 200, "an authenticator that was told which one need not say it"


def test_a_challenge_is_for_one_purpose_and_one_session(house: House, person: Person) -> None:
    maker = added(house, person)
    one, other = house.session(person.id), house.session(person.id)
    to_sign_in = maker.get(asked(house, SIGN_IN_OPTIONS))
    to_step_up = maker.get(asked(house, STEP_UP_OPTIONS, one))
    new = Authenticator()
    to_add = asked(house, OPTIONS, person.session)
    of_adding = maker.get({**to_add, "rpId": "localhost"})
    for credential in (to_sign_in, of_adding):
        is_problem(house.post(STEP_UP, one, json={"credential": credential}), 403)
    for credential in (to_step_up, of_adding):
        is_problem(house.post(SIGN_IN, json={"credential": credential}), 401)
    is_problem(house.post(STEP_UP, other, json={"credential": to_step_up}), 403, "passkey_refused")
    stepped = house.session(person.id, mfa=True)
    body: dict[str, Any] = {"name": "New", "credential": new.create(to_add)}
    is_problem(house.post(PASSKEYS, stepped, json=body), 403, "passkey_refused")
    assert house.post(PASSKEYS, person.session, json=body).status_code == 201


def test_a_challenge_is_good_once_and_for_five_minutes(house: House, person: Person) -> None:
    maker = added(house, person)
    credential = maker.get(asked(house, SIGN_IN_OPTIONS))
    requests = [("POST", SIGN_IN, None, {"json": {"credential": credential}}) for _ in range(20)]
    answers = house.together(*requests)
    assert sorted(answer.status_code for answer in answers) == [201] + [401] * 19
    fresh = house.session(person.id)
    credential = maker.get(asked(house, STEP_UP_OPTIONS, fresh))
    assert house.post(STEP_UP, fresh, json={"credential": credential}).status_code == 200
    is_problem(house.post(STEP_UP, fresh, json={"credential": credential}), 403)
    late = maker.get(asked(house, SIGN_IN_OPTIONS))
    house.pass_time(301)
    is_problem(house.post(SIGN_IN, json={"credential": late}), 401, "sign_in_refused")
    with house.database.read() as db:
        assert len(list(db.scalars(select(UsedChallenge)))) >= 2


def test_nothing_else_is_added(house: House, person: Person) -> None:
    options = asked(house, OPTIONS, person.session)
    maker = Authenticator()
    right = maker.create(options)
    response = right["response"]
    wrong = {
        "another origin": replace(maker, origin="http://evil.example").create(options),
        "another site": replace(maker, rp_id="evil.example").create(options),
        "nobody verified": replace(maker, flags=PRESENT).create(options),
        "a use": replace(maker, client_data={"type": "webauthn.get"}).create(options),
        "no attestation": {**right, "response": {**response, "attestationObject": "AA"}},
        "deep attestation": {
            **right,
            "response": {**response, "attestationObject": base64url(b"\x81" * 6_000)},
        },
        "a promise of much": {
            **right,
            "response": {**response, "attestationObject": base64url(b"\x9b" + b"\x7f" * 8)},
        },
        "cut off": {
            **right,
            "response": {**response, "attestationObject": response["attestationObject"][:80]},
        },
        "two ids": {**right, "id": "AAAA"},
        "no challenge of ours": maker.create({**options, "challenge": "AAAA"}),
    }
    for what, credential in wrong.items():
        body = {"name": "Phone", "credential": credential}
        answer = house.post(PASSKEYS, person.session, json=body)
        assert answer.status_code == 403, (what, answer.text)
        is_problem(answer, 403, "passkey_refused")
    assert me(house, person.session)["user"]["passkeys"] == 0
    body = {"name": "Phone", "credential": right}
    assert house.post(PASSKEYS, person.session, json=body).status_code == 201
    is_problem(house.post(PASSKEYS, person.session, json=body), 403, "passkey_refused")


def test_a_credential_of_somebody_else_is_not_taken_over(house: House, person: Person) -> None:
    maker = added(house, person)
    thief = house.person()
    copied = Authenticator(credential_id=maker.credential_id)
    is_problem(add(house, thief.session, copied), 409, "conflict")
    assert sign_in(house, maker).status_code == 201
    is_problem(sign_in(house, copied), 401, "sign_in_refused")


@pytest.mark.parametrize("wrong", [None, "", 5, [], {"id": "x"}, "A" * 9_000, "not+base64/url="])
def test_what_is_no_credential_is_refused_by_its_form(house: House, wrong: Any) -> None:
    credential = Authenticator(user_handle="AA").get({"rpId": "localhost", "challenge": "AAAA"})
    for body in (
        {"credential": wrong},
        {"credential": {**credential, "id": wrong}},
        {"credential": {**credential, "response": {**credential["response"], "signature": wrong}}},
    ):
        is_problem(house.post(SIGN_IN, json=body), 422)
    huge = {"credential": {**credential, "id": "A" * 20_000}}
    assert house.post(SIGN_IN, json=huge).status_code == 413
