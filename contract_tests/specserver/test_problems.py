"""A problem's title is its code, as people write it."""

import pytest

from specserver.problems import Problem


@pytest.mark.parametrize(
    ("code", "title"),
    [
        ("mfa_required", "MFA required"),
        ("malformed_json", "Malformed JSON"),
        ("too_many_at_once", "Too many at once"),
        ("api_key_required", "API key required"),
    ],
)
def test_initials_stay_capitals(code: str, title: str) -> None:
    assert Problem(403, "what is wrong", code=code).title == title
