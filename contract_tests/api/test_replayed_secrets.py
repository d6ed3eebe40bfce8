"""Replays of secrets: for the session that gave the second factor, and of sign-ins for a minute."""

from typing import Any

import httpx
import pyotp
import pytest

from contract_tests.api.harness import PASSWORD, House
from contract_tests.api.rows import Estate, estate, is_problem
from contract_tests.api.second_factor import code, enrolled

GUARDED = {
    "api-keys": {"name": "ci", "role": "owner"},
    "instances/{}/credentials/reveal": None,
    "instances/{}/credentials/rotate": None,
    "instances/{}/console-sessions": None,
}


@pytest.fixture(scope="module")
def here(house: House) -> Estate:
    made = estate(house)
    owner = made.tenant.owner
    enrolled(house, owner)
    return made


@pytest.mark.parametrize("guarded", GUARDED)
def test_only_the_session_that_gave_the_second_factor_gets_it_again(
    house: House, here: Estate, guarded: str
) -> None:
    owner, body = here.tenant.owner, GUARDED[guarded]
    path = f"{here.tenant.path}/{guarded.format(here.instance_id)}"
    options: dict[str, Any] = {"headers": {"Idempotency-Key": f"k {guarded}".replace(" ", "-")}}
    if body is not None:
        options["json"] = body

    def ask(session: str) -> httpx.Response:
        return house.post(path, session, **options)

    giver, other = house.session(owner.id, mfa=True), house.session(owner.id, mfa=True)
    first = ask(giver)
    assert first.status_code in (200, 201), first.text
    assert ask(giver).json() == first.json()
    is_problem(ask(house.session(owner.id)), 403, "mfa_required")
    lost = ask(other)
    is_problem(lost, 409, "idempotency_answer_lost")
    assert "another session" in lost.json()["detail"]


def test_an_enrolment_is_told_to_its_session_alone(house: House) -> None:
    person = house.person("Ada")
    options: dict[str, Any] = {"json": {}, "headers": {"Idempotency-Key": "enrol"}}
    fresh, stolen = house.session(person.id), house.session(person.id)
    first = house.post("/v1/me/totp", fresh, **options)
    assert first.status_code == 201, first.text
    assert house.post("/v1/me/totp", fresh, **options).json() == first.json()
    is_problem(house.post("/v1/me/totp", stolen, **options), 409, "idempotency_answer_lost")


def test_an_enrolment_is_told_again_for_a_minute_only(house: House) -> None:
    """Later its secret would be worth the second factor itself."""
    person = house.person("Ada")
    options: dict[str, Any] = {"json": {}, "headers": {"Idempotency-Key": "enrol"}}
    session = house.session(person.id)
    first = house.post("/v1/me/totp", session, **options)
    assert house.post("/v1/me/totp", session, **options).json() == first.json()
    confirmed = {"code": code(house, pyotp.TOTP(first.json()["secret"]))}
    answer = house.post("/v1/me/totp/actions/confirm", session, json=confirmed)
    assert answer.status_code == 200, answer.text
    house.pass_time(60)
    is_problem(house.post("/v1/me/totp", session, **options), 409, "conflict")


def sign_in(house: House, email: str, password: str, **more: str) -> httpx.Response:
    body = {"email": email, "password": password, **more}
    return house.post("/v1/sessions", json=body, headers={"Idempotency-Key": "sign-in"})


def test_a_repeated_sign_in_needs_the_password_as_it_is_now(house: House) -> None:
    person = house.person("Ada")
    first = sign_in(house, person.email, PASSWORD)
    assert first.status_code == 201, first.text
    again = sign_in(house, person.email, PASSWORD)
    assert (again.json(), again.headers["Idempotency-Replayed"]) == (first.json(), "true")
    body = {"current_password": PASSWORD, "new_password": "staple-of-nine-oaks"}
    changed = house.post("/v1/me/password", first.json()["token"], json=body)
    assert changed.status_code == 204, changed.text
    is_problem(sign_in(house, person.email, PASSWORD), 401, "sign_in_refused")


def test_a_code_signs_in_again_for_a_minute_only(house: House) -> None:
    person = house.person("Ada")
    totp = enrolled(house, person)
    house.pass_time(60)
    now = code(house, totp)
    first = sign_in(house, person.email, PASSWORD, totp_code=now)
    assert first.status_code == 201, first.text
    house.pass_time(30)
    assert sign_in(house, person.email, PASSWORD, totp_code=now).json() == first.json()
    house.pass_time(30)
    is_problem(sign_in(house, person.email, PASSWORD, totp_code=now), 401, "sign_in_refused")
