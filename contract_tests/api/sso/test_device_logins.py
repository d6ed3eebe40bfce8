"""Device logins: a program gets a session of whoever lets it in, once, and no more than theirs."""

from datetime import timedelta
from typing import Any

import httpx
import pytest

from contract_tests.api.harness import House, Person
from contract_tests.api.rows import is_problem
from contract_tests.api.second_factor import enrolled
from contract_tests.api.sso.with_domains import by_sso, enforcing, member_at

BEGIN = "/v1/device-logins"
FIND, DECIDE, EXCHANGE = (f"{BEGIN}/actions/{act}" for act in ("find", "decide", "exchange"))


@pytest.fixture
def person(house: House) -> Person:
    return house.person("Ada")


def begin(house: House) -> dict[str, Any]:
    begun = house.post(BEGIN)
    assert begun.status_code == 201, begun.text
    return dict(begun.json())


def decide(
    house: House, session: str, begun: dict[str, Any], decision: str = "approved"
) -> httpx.Response:
    body = {"user_code": begun["user_code"], "decision": decision}
    return house.post(DECIDE, session, json=body)


def exchange(house: House, begun: dict[str, Any]) -> httpx.Response:
    return house.post(EXCHANGE, json={"device_code": begun["device_code"]})


def test_a_program_gets_one_session(house: House, person: Person) -> None:
    begun = begin(house)
    assert begun["verification_url"] == "http://127.0.0.1:8080/account/device"
    assert exchange(house, begun).json()["code"] == "authorization_pending"
    typed = begun["user_code"].lower().replace("-", " ")
    found = house.post(FIND, person.session, json={"user_code": typed})
    assert found.json()["ip"] == "203.0.113.7"
    assert decide(house, person.session, begun).status_code == 204
    is_problem(decide(house, person.session, begun), 404)
    is_problem(house.post(FIND, person.session, json={"user_code": typed}), 404)
    opened = exchange(house, begun)
    assert opened.status_code == 201, opened.text
    assert house.get("/v1/me", opened.json()["token"]).json()["user"]["id"] == person.id
    assert opened.json()["assurance"] == "none"
    is_problem(exchange(house, begun), 404)


def test_of_twenty_that_fetch_it_at_once_one_gets_it(house: House, person: Person) -> None:
    begun = begin(house)
    decide(house, person.session, begun)
    asked = ("POST", EXCHANGE, None, {"json": {"device_code": begun["device_code"]}})
    answers = house.together(*([asked] * 20))
    assert sorted(answer.status_code for answer in answers) == [201] + [404] * 19


def test_it_waits_ten_minutes(house: House, person: Person) -> None:
    begun = begin(house)
    house.pass_time(timedelta(minutes=10).total_seconds())
    is_problem(decide(house, person.session, begun), 404)
    late = exchange(house, begun)
    assert (late.status_code, late.json()["code"]) == (409, "expired_token")


def test_one_that_was_refused_gets_nothing(house: House, person: Person) -> None:
    begun = begin(house)
    decide(house, person.session, begun, "denied")
    for _ in range(2):
        assert exchange(house, begun).json()["code"] == "access_denied"
    is_problem(decide(house, person.session, begun), 404)


def test_it_ends_with_the_session_that_let_it_in(house: House, person: Person) -> None:
    begun = begin(house)
    decide(house, person.session, begun)
    house.request("DELETE", "/v1/sessions/current", person.session)
    assert exchange(house, begun).json()["code"] == "expired_token"


def test_it_can_do_no_more_than_that_session(house: House) -> None:
    made = enforcing(house)
    member = member_at(house, made)
    for session, status in ((member.session, 403), (by_sso(house, member, made), 200)):
        begun = begin(house)
        assert decide(house, session, begun).status_code == 204
        token = exchange(house, begun).json()["token"]
        assert house.get(f"{made.tenant.path}/projects", token).status_code == status
    mine = {"name": "Mine", "slug": begun["user_code"].lower()}
    is_problem(house.post("/v1/orgs", token, json=mine), 403)


def test_whoever_has_a_second_factor_gives_it(house: House, person: Person) -> None:
    enrolled(house, person)
    begun, later = begin(house), house.session(person.id)
    is_problem(decide(house, later, begun), 403)
    assert decide(house, person.session, begun).status_code == 204


@pytest.mark.parametrize("code", ["", "BBBB", "1234-5678", "BBBB-BBBB-BBBB-BBBB-BBBB"])
def test_what_is_no_code_is_said_so(house: House, person: Person, code: str) -> None:
    is_problem(house.post(FIND, person.session, json={"user_code": code}), 422)
    is_problem(house.post(EXCHANGE, json={"device_code": code}), 422)
