"""Guessing at accounts: counted from all addresses together, while owners get in."""

import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pyotp
import pytest
from sqlalchemy import event

from contract_tests.api import second_factor
from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.api.rows import is_problem
from contract_tests.api.second_factor import CONFIRM, code, enrol, wrong
from control.boundary import identity
from control.boundary.shared_windows import DatabaseMeter
from control.boundary.windows import LibraryMeter, LocalWindows
from storage.access import sessions

ALLOWED, FROM_ONE, FROM_A_NETWORK = 10, 3, 12
LEFT = ALLOWED - 1
"""Codes, after the one that confirmed the authenticator."""
HOME = "192.0.2.1"
STEP_UP = "/v1/sessions/current/actions/step-up"


# By day a test is counted in one of two ways, at night in both on either kind of database.
COUNTED = [
    pytest.param("sqlite", "memory", id="sqlite"),
    pytest.param("postgresql", "database", id="postgresql"),
    pytest.param("sqlite", "database", id="sqlite, there", marks=pytest.mark.nightly),
    pytest.param("postgresql", "memory", id="postgresql, not there", marks=pytest.mark.nightly),
]


def counted(test: Callable[..., None]) -> Any:
    each = pytest.mark.parametrize(("house", "counting"), COUNTED, indirect=True)
    return each(pytest.mark.usefixtures("counting")(test))


@pytest.fixture
def counting(request: pytest.FixtureRequest, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    meters = {"memory": LibraryMeter(LocalWindows()), "database": DatabaseMeter(house.database)}
    monkeypatch.setattr(house.services.limiter, "_meter", meters[request.param])


@pytest.fixture
def patient(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the limit of a minute, which a patient thief waits out."""
    limiter = house.services.limiter
    windows = {**limiter._windows, "authentication": limiter._windows["default"]}
    monkeypatch.setattr(limiter, "_windows", windows)


@pytest.fixture
def person(house: House) -> Person:
    return house.person("Ada")


@pytest.fixture
def enrolled(house: House, person: Person) -> pyotp.TOTP:
    """Of `person`, whose session has passed the second factor."""
    return second_factor.enrolled(house, person)


def strangers() -> Iterator[str]:
    """Addresses in networks that no other test has used."""
    net = os.urandom(2).hex()
    return (f"2001:{net}:{number:x}::1" for number in itertools.count())


def attempt(
    house: House, email: str, address: str, token: str | None = None, **body: Any
) -> httpx.Response:
    given = {"email": email, "password": "wrong-horse-battery", **body}
    return house.post("/v1/sessions", token, json=given, address=address)


def crowd(
    house: House, email: str, tries: int = 14, token: str | None = None, **body: Any
) -> list[httpx.Response]:
    """Tries from as many networks."""
    places = strangers()
    return [attempt(house, email, next(places), token, **body) for _ in range(tries)]


def statuses(answers: list[httpx.Response]) -> list[int]:
    return [one.status_code for one in answers]


@contextmanager
def statements(house: House) -> Iterator[list[str]]:
    """What the database is asked meanwhile."""
    found: list[str] = []

    def note(*args: Any) -> None:
        found.append(args[2])

    event.listen(house.database.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(house.database.engine, "before_cursor_execute", note)


def end(house: House, token: str, how: str) -> None:
    with house.database.write() as db:
        session = sessions.by_token_hash(db, identity.token_sha256(token))
        assert session is not None
        setattr(session, how, house.database.now(db))


def signed_in(house: House, person: Person, address: str) -> str:
    answer = attempt(house, person.email, address, password=PASSWORD)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


# Passwords.


@counted
def test_an_account_is_guessed_at_ten_times_and_then_thrice_from_each_address(
    house: House, person: Person
) -> None:
    crowd(house, person.email, ALLOWED)
    for address in ("198.51.100.1", "198.51.101.1", "2001:db8:1:100::1", "2001:db8:2:100::1"):
        found = [attempt(house, person.email, address) for _ in range(FROM_ONE + 2)]
        assert statuses(found) == [401] * FROM_ONE + [429] * 2
        assert found[-1].json()["code"] == "account_rate_limited"
        assert 0 < int(found[-1].headers["retry-after"]) <= 901
        assert "account_address" in found[-1].headers["ratelimit-policy"]


@pytest.mark.parametrize(
    "one_holder",
    [
        [f"2001:db8:3:1{number:02x}::1" for number in range(8)],
        [f"2001:db8:4:200::{number:x}" for number in range(8)],
    ],
    ids=["/56", "/64"],
)
@counted
def test_the_addresses_of_one_line_are_one(
    house: House, person: Person, one_holder: list[str]
) -> None:
    crowd(house, person.email, ALLOWED)
    found = [attempt(house, person.email, address) for address in one_holder]
    assert statuses(found) == [401] * FROM_ONE + [429] * (len(one_holder) - FROM_ONE)


@pytest.mark.parametrize(
    "network",
    [lambda number: f"203.0.114.{number}", lambda number: f"2001:db8:5:{number:02x}00::1"],
    ids=["/24", "/48"],
)
@counted
def test_many_addresses_of_one_network_get_twelve_tries(
    house: House, person: Person, network: Callable[[int], str]
) -> None:
    crowd(house, person.email, ALLOWED)
    found = [attempt(house, person.email, network(number)) for number in range(1, 16)]
    assert statuses(found) == [401] * FROM_A_NETWORK + [429] * 3
    assert attempt(house, person.email, "198.51.100.9", password=PASSWORD).status_code == 201


@counted
def test_an_account_that_is_not_there_answers_the_same(house: House, person: Person) -> None:
    nobody = f"{os.urandom(8).hex()}@example.org"
    there, not_there = crowd(house, person.email, 12), crowd(house, nobody, 12)
    for address in ["198.51.100.7"] * 5:
        there.append(attempt(house, person.email, address))
        not_there.append(attempt(house, nobody, address))
    assert statuses(there)[-1] == 429
    for one, other in zip(there, not_there, strict=True):
        assert one.status_code == other.status_code
        texts = (re.sub(r"req_\w+|\d+ s", "", each.text) for each in (one, other))
        assert len(set(texts)) == 1


@pytest.mark.parametrize("full", [False, True], ids=["counts free", "counts full"])
@counted
@pytest.mark.usefixtures("patient")
def test_an_account_that_is_not_there_costs_the_same_queries(
    house: House, person: Person, full: bool
) -> None:
    """Else the time that a refusal takes would tell who has an account."""
    signed_in(house, person, HOME)
    other = house.person("Eve").session
    asked = []
    for email in (person.email, f"{os.urandom(8).hex()}@example.org"):
        # What counts tries has its rows after the first.
        crowd(house, email, ALLOWED if full else 1)
        for _ in range(FROM_ONE if full else 1):
            attempt(house, email, HOME)
        with statements(house) as found:
            answers = [attempt(house, email, HOME, token) for token in (None, other)]
        assert statuses(answers) == [429 if full else 401] * 2
        asked.append(found)
    assert asked[0] == asked[1]
    assert any("FROM sessions" in each for each in asked[0])


@counted
def test_tries_at_one_account_are_none_at_another(house: House, person: Person) -> None:
    other = house.person("Eve")
    crowd(house, person.email, ALLOWED)
    found = [attempt(house, other.email, "198.51.100.6") for _ in range(FROM_ONE + 2)]
    assert statuses(found) == [401] * (FROM_ONE + 2)


@counted
def test_no_crowd_locks_out_an_owner_who_has_never_signed_in(house: House, person: Person) -> None:
    crowd(house, person.email, 40)
    assert attempt(house, person.email, "198.51.100.2", password=PASSWORD).status_code == 201


@counted
@pytest.mark.usefixtures("patient")
def test_at_home_the_right_password_is_let_in_however_much_was_tried(
    house: House, person: Person
) -> None:
    token = signed_in(house, person, HOME)
    crowd(house, person.email, 11)
    for _ in range(FROM_ONE + 2):
        attempt(house, person.email, HOME)
    assert attempt(house, person.email, HOME, password=PASSWORD).status_code == 201
    # Elsewhere a live session tells who it is.
    away = "198.51.100.3"
    for _ in range(FROM_ONE + 2):
        attempt(house, person.email, away)
    refused = attempt(house, person.email, away, password=PASSWORD)
    is_problem(refused, 429, "account_rate_limited")
    assert re.fullmatch(
        "too many attempts for this account, and from your address; sign in from a device that is"
        r" still signed in \(`menagerie login` sends its session; other clients send its token as a"
        r" bearer token\) or from the address it signed in from, or wait [1-9]\d* s",
        refused.json()["detail"],
    )
    assert attempt(house, person.email, away, token, password=PASSWORD).status_code == 201


@pytest.mark.parametrize("how", ["revoked_at", "expires_at"])
@counted
@pytest.mark.usefixtures("patient")
def test_an_ended_session_vouches_for_nobody(house: House, person: Person, how: str) -> None:
    token = signed_in(house, person, HOME)
    end(house, token, how)
    end(house, person.session, how)
    crowd(house, person.email, ALLOWED)
    for address, sent in ((HOME, None), ("198.51.100.4", token)):
        found = [attempt(house, person.email, address, sent) for _ in range(FROM_ONE)]
        assert statuses(found) == [401] * FROM_ONE
        is_problem(attempt(house, person.email, address, sent, password=PASSWORD), 429)


@counted
def test_a_live_session_guesses_ten_times_and_takes_nothing_from_the_account(
    house: House, person: Person
) -> None:
    assert statuses(crowd(house, person.email, 12, person.session)) == [401] * ALLOWED + [429] * 2
    refused = crowd(house, person.email, 1, person.session, password=PASSWORD)[0]
    told = r"too many attempts with this session; wait [1-9]\d* s"
    assert re.fullmatch(told, refused.json()["detail"])
    assert "account" in refused.headers["ratelimit-policy"]
    assert 0 < int(refused.headers["retry-after"]) <= 901
    other = house.session(person.id)
    assert crowd(house, person.email, 1, other, password=PASSWORD)[0].status_code == 201
    assert statuses(crowd(house, person.email, ALLOWED)) == [401] * ALLOWED


@counted
def test_anothers_session_makes_nobody_known(house: House, person: Person) -> None:
    other = house.person("Eve")
    crowd(house, person.email, ALLOWED)
    for place, token in zip((1, 2, 3), (other.session, "ms_nonsense", "mk_live_x"), strict=True):
        address = f"198.51.102.{place}"
        for _ in range(FROM_ONE):
            assert attempt(house, person.email, address, token).status_code == 401
        answer = attempt(house, person.email, address, token, password=PASSWORD)
        is_problem(answer, 429, "account_rate_limited")


@counted
@pytest.mark.usefixtures("patient")
def test_a_shared_address_does_not_tell_who_signs_in_there(house: House, person: Person) -> None:
    signed_in(house, person, HOME)
    unknown = f"{os.urandom(8).hex()}@example.org"
    attempt(house, unknown, HOME)
    for _ in range(16):
        there, not_there = attempt(house, person.email, HOME), attempt(house, unknown, HOME)
        assert there.status_code == not_there.status_code
        assert there.json().get("code") == not_there.json().get("code")
    assert there.json()["code"] == "account_rate_limited"
    assert attempt(house, person.email, HOME, password=PASSWORD).status_code == 201


# Codes.


@counted
def test_codes_are_counted_by_user_whatever_address_or_token(
    house: House, person: Person, enrolled: pyotp.TOTP
) -> None:
    body = {"password": PASSWORD, "totp_code": wrong(house, enrolled)}
    thief = signed_in(house, person, next(strangers()))
    found = crowd(house, person.email.upper(), 4, **body)
    found += crowd(house, person.email, 8, thief, **body) + crowd(house, person.email, 2, **body)
    assert statuses(found) == [401] * LEFT + [429] * (14 - LEFT)
    is_problem(found[-1], 429, "code_rate_limited")
    assert re.fullmatch(
        "too many codes were tried for this account, by somebody who knows its password; send the"
        " code from a session that has passed the second factor before, which is counted"
        r" separately, or wait [1-9]\d* s",
        found[-1].json()["detail"],
    )
    assert 0 < int(found[-1].headers["retry-after"]) <= 901
    # Nor does the right one get in, so the answers tell nothing of it; and no session multiplies.
    is_problem(
        crowd(house, person.email, 1, **body | {"totp_code": code(house, enrolled, 1)})[0], 429
    )
    for token in (thief, house.session(person.id)):
        is_problem(house.post(STEP_UP, token, json={"code": code(house, enrolled, 1)}), 429)


@counted
def test_many_sessions_guess_at_codes_as_often_as_one(
    house: House, person: Person, enrolled: pyotp.TOTP
) -> None:
    body = {"json": {"code": wrong(house, enrolled)}}
    found = [house.post(STEP_UP, house.session(person.id), **body) for _ in range(14)]
    assert statuses(found) == [403] * LEFT + [429] * (14 - LEFT)


@counted
def test_codes_that_confirm_are_counted_too(house: House, person: Person) -> None:
    body = {"json": {"code": wrong(house, enrol(house, person))}}
    found = [house.post(CONFIRM, house.session(person.id), **body) for _ in range(12)]
    assert statuses(found) == [403] * ALLOWED + [429] * 2


@counted
def test_a_session_that_passed_the_second_factor_is_not_locked_out(
    house: House, person: Person, enrolled: pyotp.TOTP
) -> None:
    body = {"password": PASSWORD, "totp_code": wrong(house, enrolled)}
    assert statuses(crowd(house, person.email, 12, **body))[-1] == 429
    right = {"json": {"code": code(house, enrolled, 1)}}
    assert house.post(STEP_UP, person.session, **right).status_code == 200
    # But it guesses no more often than all others together.
    found = crowd(house, person.email, 11, person.session, **body)
    assert statuses(found) == [401] * (ALLOWED - 1) + [429] * 2


@counted
def test_whoever_knows_the_password_is_shut_out_from_the_owners_device(
    house: House, person: Person, enrolled: pyotp.TOTP
) -> None:
    """The count of codes is kept full by somebody else, who has the password only."""
    thief = {"password": PASSWORD, "totp_code": wrong(house, enrolled)}
    assert statuses(crowd(house, person.email, 12, **thief))[-1] == 429
    own = {"password": PASSWORD, "totp_code": code(house, enrolled, 1)}
    again = attempt(house, person.email, next(strangers()), person.session, **own)
    assert again.status_code == 201
    changed = {"current_password": PASSWORD, "new_password": "staple-of-nine-oaks"}
    answer = house.post("/v1/me/password", again.json()["token"], json=changed)
    assert answer.status_code == 204
    assert statuses(crowd(house, person.email, 1, **thief)) == [401]


@counted
def test_who_does_not_know_the_password_uses_up_no_codes(
    house: House, person: Person, enrolled: pyotp.TOTP
) -> None:
    crowd(house, person.email, 20, totp_code="000000")
    body = {"password": PASSWORD, "totp_code": code(house, enrolled, 1)}
    assert attempt(house, person.email, "198.51.100.5", **body).status_code == 201


@counted
def test_a_sessions_guesses_in_a_minute_take_nothing_from_another(
    house: House, person: Person, enrolled: pyotp.TOTP
) -> None:
    thief, bad = house.session(person.id), {"json": {"code": wrong(house, enrolled)}}
    assert statuses([house.post(STEP_UP, thief, **bad) for _ in range(11)])[-1] == 429
    right = {"json": {"code": code(house, enrolled, 1)}}
    assert house.post(STEP_UP, person.session, **right).status_code == 200
