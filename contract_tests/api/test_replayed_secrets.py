"""Replays of what a second factor guards: for the session that gave it, while it holds."""

from typing import Any

import httpx
import pytest

from contract_tests.api.harness import House
from contract_tests.api.rows import Estate, estate, is_problem
from contract_tests.api.second_factor import enrolled

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
