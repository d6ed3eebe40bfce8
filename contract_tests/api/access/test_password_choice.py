"""Wherever somebody chooses a password, one that is easily guessed is refused with its reason."""

from typing import Any

import pytest

from contract_tests.api import letters
from contract_tests.api.harness import PASSWORD, House
from contract_tests.api.rows import is_problem
from control.boundary import passwords
from control.boundary.windows import LibraryMeter, LocalWindows
from control.policy.passwords import check_choice

STRONG = "staple-of-nine-oaks"
COMMON = "password1234"


def refused(answer: Any, pointer: str, reason: str) -> None:
    is_problem(answer, 422, "invalid_request")
    (error,) = answer.json()["errors"]
    assert (error["pointer"], error["keyword"]) == (pointer, "strength")
    assert reason in error["message"]
    assert answer.json()["detail"] == error["message"]


def test_a_weak_password_makes_no_account_and_leaves_the_invite(house: House) -> None:
    token = letters.invite(house, house.tenant(plan="team"), letters.new_email("grace.hopper"))
    body = {"invite_token": token, "name": "Grace Hopper", "password": COMMON}
    refused(house.post("/v1/users", json=body), "/password", "among the most common passwords")
    for own in ("grace.hopper", "hopper@example", "Grace Hopper!"):
        body["password"] = own
        refused(house.post("/v1/users", json=body), "/password", "your name or your email")
    body["password"] = STRONG
    assert house.post("/v1/users", json=body).status_code == 201


def test_a_weak_password_replaces_none(house: House) -> None:
    person = house.person("Ada Lovelace")
    body = {"current_password": PASSWORD, "new_password": COMMON}
    path = "/v1/me/password"
    refused(house.post(path, person.session, json=body), "/new_password", "most common")
    body["new_password"] = person.email
    refused(house.post(path, person.session, json=body), "/new_password", "your name")
    # Whoever does not know the password is told nothing else.
    wrong = {**body, "current_password": "wrong-horse-battery"}
    is_problem(house.post(path, person.session, json=wrong), 403, "password_refused")
    signing_in = {"email": person.email, "password": PASSWORD}
    assert house.post("/v1/sessions", json=signing_in).status_code == 201


def test_the_bounds_of_its_length_stay(house: House) -> None:
    person = house.person()
    for length, allowed in ((11, False), (12, True), (256, True), (257, False)):
        chosen = ("xK9#vQ2$mLp7" * 30)[:length]
        body = {"current_password": PASSWORD, "new_password": chosen}
        answer = house.post("/v1/me/password", person.session, json=body)
        assert (answer.status_code == 204) is allowed, (length, answer.text)
        if allowed:
            body = {"current_password": chosen, "new_password": PASSWORD}
            assert house.post("/v1/me/password", person.session, json=body).status_code == 204


def test_a_password_from_a_breach_is_refused_wherever_it_is_chosen(house: House) -> None:
    """It withstands guessing, and is tried before others all the same."""
    person, known = house.person(), "youwillneverguessthis1103"
    reset = {"reset_token": letters.reset(house, person.email), "password": known}
    token = letters.invite(house, house.tenant(plan="team"), letters.new_email())
    account = {"invite_token": token, "name": "New", "password": known}
    change = {"current_password": PASSWORD, "new_password": known}
    for path, body, pointer in (
        ("/v1/users", account, "/password"),
        ("/v1/password-resets/actions/complete", reset, "/password"),
        ("/v1/me/password", change, "/new_password"),
    ):
        answer = house.post(path, person.session, json=body)
        is_problem(answer, 422, "invalid_request")
        (error,) = answer.json()["errors"]
        assert (error["pointer"], error["keyword"]) == (pointer, "breached")
        assert "breaches of other services" in error["message"]


@pytest.mark.parametrize("kind", ["invite", "reset"])
def test_a_token_is_taken_ten_times_in_a_quarter_of_an_hour(
    house: House, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From all addresses together: each password that is refused has been looked at."""
    if kind == "invite":
        token = letters.invite(house, house.tenant(plan="team"), letters.new_email("slow"))
        path, body = "/v1/users", {"invite_token": token, "name": "Slow"}
    else:
        token = letters.reset(house, house.person().email)
        path, body = "/v1/password-resets/actions/complete", {"reset_token": token}
    monkeypatch.setattr(house.services.limiter, "_meter", LibraryMeter(LocalWindows()))
    looked_at: list[str] = []

    def noted(password: str, *more: Any) -> Any:
        looked_at.append(password)
        return check_choice(password, *more)

    monkeypatch.setattr(passwords, "check_choice", noted)
    asked = [
        ("POST", path, None, {"json": {**body, "password": COMMON}, "address": f"2001:db8:{n}::1"})
        for n in range(20)
    ]
    answers = house.together(*asked)
    assert sorted(one.status_code for one in answers) == [422] * 10 + [429] * 10
    assert len(looked_at) == 10
    body["password"] = STRONG
    refused = house.post(path, json=body, address="2001:db8:ffff::1")
    is_problem(refused, 429, "account_rate_limited")
    assert "this token" in refused.json()["detail"]
