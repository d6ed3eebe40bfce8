"""Letters, and the tokens in them."""

import os
import re

from contract_tests.api.harness import PASSWORD, House, Person, Tenant


def new_email(begins: str = "new") -> str:
    """An address that nobody has: files share an installation, and its accounts stay."""
    return f"{begins}@example.{os.urandom(4).hex()}.com"


def invite(house: House, tenant: Tenant, email: str, role: str = "member") -> str:
    """The token of a new invite to this address."""
    made = house.post(f"{tenant.path}/invites", tenant.key, json={"email": email, "role": role})
    assert made.status_code == 201, made.text
    return token_of_last(house)


def reset(house: House, email: str) -> str:
    """The token of a new letter by which the password of this account can be reset."""
    assert house.post("/v1/password-resets", json={"email": email}).status_code == 202
    house.settle()
    found = re.search(r"reset-token (mp_\w+)", house.letters.last.text)
    assert found is not None
    return found.group(1)


def email_change(house: House, person: Person, email: str) -> str:
    """The token of a new letter by which the person gets this address."""
    body = {"email": email, "password": PASSWORD}
    answer = house.post("/v1/me/email", person.session, json=body)
    assert answer.status_code == 202, answer.text
    house.settle()
    found = re.search(r"email-token (mv_\w+)", house.letters.last.text)
    assert found is not None
    return found.group(1)


def token_of_last(house: House) -> str:
    """That of the letter which was sent last."""
    house.settle()
    found = re.search(r"accept (mi_\w+)", house.letters.last.text)
    assert found is not None
    return found.group(1)
