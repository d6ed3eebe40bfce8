"""What the document has writeOnly is found again nowhere: in no table, no event and no log line."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from sqlalchemy import select

from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.api.rows import OPERATIONS, is_problem
from contract_tests.api.second_factor import code, enrol, enrolled
from control.boundary import secret_members
from storage.records import Record

NEW = "canary-staple-of-nine-oaks"
WRONG = "canary-wrong-horse-battery"
STEP_UP = "/v1/sessions/current/actions/step-up"
SECRETIVE = {
    one.id: names for one in OPERATIONS if (names := secret_members.names_of(one.document))
}
Act = Callable[[House, Person], list[str]]


def sign_in(house: House, person: Person) -> list[str]:
    body = {"email": person.email, "password": WRONG}
    is_problem(house.post("/v1/sessions", json=body), 401)
    body = {"email": person.email, "password": PASSWORD}
    assert house.post("/v1/sessions", json=body).status_code == 201
    return [WRONG, PASSWORD]


def sign_in_with_a_code(house: House, person: Person) -> list[str]:
    totp = enrolled(house, person)
    first, second = code(house, totp), code(house, totp, 1)
    body = {"email": person.email, "password": PASSWORD, "totp_code": second}
    assert house.post("/v1/sessions", json=body).status_code == 201
    return [first, second]


def step_up(house: House, person: Person) -> list[str]:
    totp = enrolled(house, person)
    first, second = code(house, totp), code(house, totp, 1)
    answer = house.post(STEP_UP, person.session, json={"code": second})
    assert answer.is_success, answer.text
    return [first, second]


def change_password(house: House, person: Person) -> list[str]:
    for current in (WRONG, PASSWORD):
        body = {"current_password": current, "new_password": NEW}
        house.post("/v1/me/password", person.session, json=body)
    return [WRONG, PASSWORD, NEW]


def enrol_twice(house: House, person: Person) -> list[str]:
    house.post("/v1/me/totp", person.session, json={"password": WRONG})
    enrol(house, person)
    return [WRONG, PASSWORD]


ACTS: dict[str, dict[str, Act]] = {
    "sessions.create": {"password": sign_in, "totp_code": sign_in_with_a_code},
    "sessions.step_up": {"code": step_up},
    "me.change_password": {"current_password": change_password, "new_password": change_password},
    "me.enrol_totp": {"password": enrol_twice},
    "me.confirm_totp": {"code": step_up},
}


def test_every_secret_member_of_every_operation_is_tried() -> None:
    assert {name: set(acts) for name, acts in ACTS.items()} == SECRETIVE


@pytest.fixture
def log() -> Iterator[list[Any]]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    with structlog.testing.capture_logs() as captured:
        yield captured
    structlog.configure(**before)


@pytest.mark.parametrize("operation", ACTS)
def test_no_secret_is_found_again(house: House, operation: str, log: list[Any]) -> None:
    for act in ACTS[operation].values():
        secrets = set(act(house, house.person())) - {""}
        with house.database.read() as db:
            for table in Record.metadata.sorted_tables:
                for row in db.connection().execute(select(table)):
                    seen = set(_texts(list(row)))
                    assert not seen & secrets, table.name
                    long = {one for one in secrets if len(one) > 6}
                    assert not [text for text in seen if any(one in text for one in long)]
        assert not set(_texts(log)) & secrets
    assert log or operation != "sessions.create", "the log tells of a refused sign-in"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, bytes):
        yield value.decode("latin-1")
    elif isinstance(value, str):
        yield value
