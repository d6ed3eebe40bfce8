"""People with an authenticator app, and the codes it would show."""

from datetime import timedelta

import pyotp

from contract_tests.api.harness import PASSWORD, House, Person

CONFIRM = "/v1/me/totp/actions/confirm"


def enrol(house: House, person: Person) -> pyotp.TOTP:
    answer = house.post("/v1/me/totp", person.session, json={"password": PASSWORD})
    assert answer.status_code == 201, answer.text
    secret = answer.json()["secret"]
    assert pyotp.parse_uri(answer.json()["otpauth_uri"]).secret == secret
    return pyotp.TOTP(secret)


def enrolled(house: House, person: Person) -> pyotp.TOTP:
    """With a second factor from now on, which the person's session has passed with this step."""
    totp = enrol(house, person)
    answer = house.post(CONFIRM, person.session, json={"code": code(house, totp)})
    assert answer.status_code == 200, answer.text
    return totp


def code(house: House, totp: pyotp.TOTP, steps: int = 0) -> str:
    return totp.at(house.now() + timedelta(seconds=30 * steps))


def wrong(house: House, totp: pyotp.TOTP) -> str:
    near = {code(house, totp, step) for step in range(-3, 4)}
    return next(guess for guess in map("{:06}".format, range(10)) if guess not in near)
