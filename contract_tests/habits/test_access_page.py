"""The page of who may do what says what the document and the roles say."""

from collections.abc import Mapping
from typing import Any

import pytest

from tools import access_page


def row(**rule: Any) -> Mapping[str, str]:
    made = access_page.row({"operationId": "things.get", "x-authorize": rule})
    return dict(zip(access_page.COLUMNS, made, strict=True))


def test_the_page_is_what_is_made_of_the_document_and_the_roles() -> None:
    assert access_page.PAGE.read_text() == access_page.text(), "run `make fix`, and commit the page"


def test_a_row_tells_who_holds_what_is_asked_for() -> None:
    told = row(permission="logs:read", scope="team", assurance="second_factor")
    assert told == {
        "Operation": "`things.get`",
        "Permission": "`logs:read`",
        "Scope": "team",
        "Also asked": "second factor if enrolled",
        "In the organization": "owner, admin, developer, member",
        "In a team": "admin, operator",
        "In a project": "admin, developer",
        "Support": "yes",
    }


@pytest.mark.parametrize("permission", ["org:write", "instances:write"])
def test_what_owners_alone_may_is_of_no_other_role(permission: str) -> None:
    told = row(permission=permission, role="owner", session="user", assurance="mfa")
    assert told["Also asked"] == "session; owner; second factor"
    assert told["In the organization"] == "owner"
    assert [told[one] for one in ("In a team", "In a project", "Support")] == ["", "", ""]


def test_what_asks_for_no_permission_says_who_may() -> None:
    assert row(permission="none")["Permission"] == "none: no sign-in needed"
    assert row(permission="self")["Permission"] == "none: whoever is signed in"
    assert row(permission="self", scope="org")["Permission"] == "none: whoever belongs to it"
