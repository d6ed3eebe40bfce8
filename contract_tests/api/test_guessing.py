"""Guessing at accounts: counted from all addresses together, while owners get in."""

import os
import re
from typing import Any

import httpx
import pytest

from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.api.rows import is_problem
from contract_tests.api.test_sessions import code, enrol, wrong
from control.boundary.shared_windows import DatabaseMeter
from control.boundary.windows import LibraryMeter, LocalWindows

ALLOWED = 10
HOME = "192.0.2.1"


@pytest.fixture(params=["memory", "database"])
def counting(request: pytest.FixtureRequest, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    meters = {"memory": LibraryMeter(LocalWindows()), "database": DatabaseMeter(house.database)}
    monkeypatch.setattr(house.services.limiter, "_meter", meters[request.param])


@pytest.fixture
def person(house: House) -> Person:
    return house.person("Ada")


def attempt(
    house: House, email: str, address: str, token: str | None = None, **body: Any
) -> httpx.Response:
    given = {"email": email, "password": "wrong-horse-battery", **body}
    return house.post("/v1/sessions", token, json=given, address=address)


def crowd(house: House, email: str, tries: int = 14, **body: Any) -> list[httpx.Response]:
    """Tries from ten networks, each below the limit of its address."""
    made = []
    net = os.urandom(2).hex()  # another test's crowd has used up what its own may
    for number in range(tries):
        address = f"2001:db8:{net}:{number % 10}::1"
        made.append(attempt(house, email, address, **body))
    return made


@pytest.mark.usefixtures("counting")
def test_an_account_is_guessed_at_ten_times_from_however_many_addresses(
    house: House, person: Person
) -> None:
    statuses = [answer.status_code for answer in crowd(house, person.email)]
    assert statuses == [401] * ALLOWED + [429] * (14 - ALLOWED)


@pytest.mark.usefixtures("counting")
def test_codes_are_guessed_at_as_seldom(house: House, person: Person) -> None:
    totp = enrol(house, person)
    answers = crowd(
        house, person.email.upper(), 12, password=PASSWORD, totp_code=wrong(house, totp)
    )
    assert [one.status_code for one in answers].count(401) == ALLOWED


@pytest.mark.usefixtures("counting")
def test_an_account_that_is_not_there_answers_the_same(house: House, person: Person) -> None:
    for there, not_there in zip(
        crowd(house, person.email, 12),
        crowd(house, f"{os.urandom(8).hex()}@example.org", 12),
        strict=True,
    ):
        assert there.status_code == not_there.status_code
        one, other = (re.sub(r"req_\w+|\d+ s", "", each.text) for each in (there, not_there))
        assert one == other


@pytest.mark.usefixtures("counting")
def test_a_crowd_locks_no_owner_out_who_was_there_before(house: House, person: Person) -> None:
    assert attempt(house, person.email, HOME, password=PASSWORD).status_code == 201
    crowd(house, person.email, 11)
    stranger = attempt(house, person.email, "192.0.2.99", password=PASSWORD)
    is_problem(stranger, 429)
    assert stranger.json()["code"] == "account_rate_limited"
    assert 0 < int(stranger.headers["retry-after"]) <= 901
    assert attempt(house, person.email, HOME, password=PASSWORD).status_code == 201
    # From a new place, an earlier session tells who it is.
    token = person.session
    assert attempt(house, person.email, "192.0.2.98", token, password=PASSWORD).status_code == 201


@pytest.mark.usefixtures("counting")
def test_anothers_session_makes_nobody_known(house: House, person: Person) -> None:
    other = house.person("Eve")
    crowd(house, person.email, 11)
    for token in (other.session, "ms_nonsense", "mk_live_x"):
        answer = attempt(house, person.email, "192.0.2.97", token, password=PASSWORD)
        is_problem(answer, 429)


@pytest.mark.usefixtures("counting")
def test_a_session_guesses_at_the_second_factor_ten_times(
    house: House, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    totp = enrol(house, person)
    answer = house.post(
        "/v1/me/totp/actions/confirm", person.session, json={"code": code(house, totp)}
    )
    assert answer.status_code < 300, answer.text
    # Beside the limit of a minute, which a patient thief waits out.
    windows = house.services.limiter._windows
    monkeypatch.setattr(
        house.services.limiter, "_windows", {**windows, "authentication": windows["default"]}
    )
    stolen = house.session(person.id)
    path, body = "/v1/sessions/current/actions/step-up", {"code": wrong(house, totp)}
    statuses = [house.post(path, stolen, json=body).status_code for _ in range(12)]
    assert statuses == [403] * ALLOWED + [429] * 2
    own = {"code": code(house, totp, 1)}
    assert house.post(path, house.session(person.id), json=own).status_code == 200


@pytest.mark.usefixtures("counting")
def test_a_shared_address_does_not_tell_who_signs_in_there(
    house: House, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = house.services.limiter._windows
    monkeypatch.setattr(
        house.services.limiter, "_windows", {**windows, "authentication": windows["default"]}
    )
    assert attempt(house, person.email, HOME, password=PASSWORD).status_code == 201
    unknown = f"{os.urandom(8).hex()}@example.org"
    attempt(house, unknown, HOME)
    for _ in range(13):
        there, not_there = attempt(house, person.email, HOME), attempt(house, unknown, HOME)
        assert there.status_code == not_there.status_code
        assert there.json().get("code") == not_there.json().get("code")
    assert there.json()["code"] == "account_rate_limited"
    assert attempt(house, person.email, HOME, password=PASSWORD).status_code == 201
