"""People with passkeys, by an authenticator in software."""

from typing import Any

import httpx

from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.api.soft_authenticator import Authenticator

PASSKEYS = "/v1/me/passkeys"
OPTIONS = f"{PASSKEYS}/actions/options"
SIGN_IN_OPTIONS = "/v1/sessions/actions/passkey-options"
SIGN_IN = "/v1/sessions/actions/sign-in-with-passkey"
STEP_UP_OPTIONS = "/v1/sessions/current/actions/passkey-options"
STEP_UP = "/v1/sessions/current/actions/step-up-with-passkey"


def asked(house: House, path: str, session: str | None = None, **body: Any) -> dict[str, Any]:
    answer = house.post(path, session, **({"json": body} if path == OPTIONS else {}))
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()["public_key"]
    return shown


def add(house: House, session: str, maker: Authenticator, name: str = "Phone") -> httpx.Response:
    credential = maker.create(asked(house, OPTIONS, session, password=PASSWORD))
    return house.post(PASSKEYS, session, json={"name": name, "credential": credential})


def added(house: House, person: Person, maker: Authenticator | None = None) -> Authenticator:
    maker = maker or Authenticator()
    answer = add(house, person.session, maker)
    assert answer.status_code == 201, answer.text
    return maker


def sign_in(house: House, maker: Authenticator) -> httpx.Response:
    credential = maker.get(asked(house, SIGN_IN_OPTIONS))
    return house.post(SIGN_IN, json={"credential": credential})


def step_up(house: House, session: str, maker: Authenticator) -> httpx.Response:
    credential = maker.get(asked(house, STEP_UP_OPTIONS, session))
    return house.post(STEP_UP, session, json={"credential": credential})
