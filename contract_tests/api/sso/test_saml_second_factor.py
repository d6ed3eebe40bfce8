"""A second factor that an identity provider of SAML tells of: which, from when, and where trusted.

What is said outside what the provider signed counts nowhere: `test_responses.py` has that.
"""

from datetime import timedelta
from typing import Any

import pytest

from contract_tests.api.harness import House
from contract_tests.api.sso import with_saml as saml
from contract_tests.saml.provider import at

CLASSES = "urn:oasis:names:tc:SAML:2.0:ac:classes"
REFEDS = "https://refeds.org/profile/mfa"
MULTIPLE = "http://schemas.microsoft.com/claims/multipleauthn"
METHODS = "http://schemas.microsoft.com/claims/authnmethodsreferences"


def methods(*values: str) -> str:
    """An attribute as Entra ID sends it."""
    listed = "".join(f"<saml:AttributeValue>{one}</saml:AttributeValue>" for one in values)
    return (
        f'<saml:AttributeStatement><saml:Attribute Name="{METHODS}">{listed}</saml:Attribute>'
        "</saml:AttributeStatement>"
    )


@pytest.fixture
def trusting(house: House) -> str:
    connection = saml.connect(house, house.tenant())
    saml.change(house, connection, trusts_mfa=True)
    return connection


def assurance(house: House, connection: str, **said: Any) -> str:
    said = {"signed_in_at": at(saml.moment(house)), **said}
    answer = saml.sign_in(house, connection, **said)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["assurance"])


@pytest.mark.parametrize(
    "said",
    [
        {"context": REFEDS},
        {"context": MULTIPLE},
        {"context": f"{CLASSES}:MobileTwoFactorContract"},
        {"context": f"{CLASSES}:MobileTwoFactorUnregistered"},
        {"inside": methods("http://schemas.microsoft.com/claims/password", MULTIPLE)},
    ],
)
def test_it_counts_where_the_connection_trusts_it(
    house: House, trusting: str, said: dict[str, str]
) -> None:
    assert assurance(house, trusting, **said) == "mfa"
    distrusting = saml.connect(house, house.tenant())
    assert assurance(house, distrusting, **said) == "none"


@pytest.mark.parametrize(
    "said",
    [
        {"context": f"{CLASSES}:PasswordProtectedTransport"},
        {"context": f"{REFEDS}/other"},
        {"context": REFEDS.upper()},
        {"inside": methods("http://schemas.microsoft.com/claims/password")},
        {"groups": [REFEDS]},
        {"name": MULTIPLE},
    ],
)
def test_what_says_something_else_is_none(
    house: House, trusting: str, said: dict[str, Any]
) -> None:
    assert assurance(house, trusting, **said) == "none"


def test_one_that_was_passed_long_ago_is_no_fresh_one(house: House, trusting: str) -> None:
    now = saml.moment(house)
    for ago, expected in ((0, "mfa"), (14, "mfa"), (16, "none"), (8 * 60, "none")):
        when = at(now - timedelta(minutes=ago))
        assert assurance(house, trusting, context=REFEDS, signed_in_at=when) == expected, ago
    # Nobody knows when; and what is yet to come lasts no longer than what was passed now.
    for when in ("", "yesterday", "2026-11-30T12:00:00+14:00"):
        assert assurance(house, trusting, context=REFEDS, signed_in_at=when) == "none", when
    tomorrow = at(now + timedelta(days=1))
    answer = saml.sign_in(house, trusting, context=REFEDS, signed_in_at=tomorrow)
    assert answer.json()["assurance"] == "mfa"
    house.pass_time(16 * 60)
    shown = house.get("/v1/me", answer.json()["token"]).json()
    assert shown["assurance"] == "none"
