"""What an organization asks of sessions, API keys and addresses."""

from datetime import UTC, datetime, timedelta

import pytest

from control.policy.org_policy import (
    allows_address,
    check_address,
    check_key_life,
    is_too_old,
)

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_an_age_ends_at_its_second() -> None:
    assert not is_too_old(NOW - HOUR, 3601, NOW)
    assert is_too_old(NOW - HOUR, 3600, NOW)
    assert not is_too_old(NOW - 10_000 * HOUR, None, NOW)


@pytest.mark.parametrize(
    ("email", "allowed"),
    [
        ("ada@example.com", True),
        ("ada@EXAMPLE.com", True),
        ("ada@example.org", True),
        ("ada@mail.example.com", False),
        ("ada@badexample.com", False),
        ("ada@example.com.evil.net", False),
        ("example.com@evil.net", False),
        ("example.com", True),
        ("", False),
    ],
)
def test_a_domain_is_itself_alone(email: str, allowed: bool) -> None:
    domains = ["example.com", "example.org"]
    assert allows_address(email, domains) is allowed
    assert allows_address(email, None)


def test_an_address_that_may_not_be_invited_is_told_which_may() -> None:
    assert check_address("ada@example.com", ["example.com"]) == []
    (found,) = check_address("ada@example.net", ["example.org", "example.com"])
    assert found == {
        "pointer": "/email",
        "keyword": "allowed_email_domains",
        "message": (
            "the organization allows email addresses of these domains only:"
            " example.com, example.org"
        ),
    }


def test_a_new_key_ends_when_the_organization_wants_it_to() -> None:
    assert check_key_life(None, None, NOW) == []
    assert check_key_life(NOW + HOUR, 3600, NOW) == []
    for later in (None, NOW + HOUR + timedelta(milliseconds=1)):
        (found,) = check_key_life(later, 3600, NOW)
        assert (found["pointer"], found["keyword"]) == ("/expires_at", "maximum")
        assert found["message"] == (
            "/expires_at must be 2026-11-21T10:00:00Z or earlier: API keys of this organization"
            " last 3600 s at most (api_key_max_age_s)"
        )
