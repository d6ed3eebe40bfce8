"""x-authorize, exhaustively: every role, key role and permission."""

from itertools import product

import pytest

from contract_tests.boundary.desk import Desk
from contract_tests.boundary.document import PERMISSIONS, path_of
from control.policy.permissions import ROLES


def allowed(desk: Desk, org: str, token: str) -> set[str]:
    """The permissions whose operation lets the token in; anything but 200 or 403 fails."""
    answers = desk.together(
        ("GET", path_of(permission).format(org_id=org), token, {}) for permission in PERMISSIONS
    )
    found = set()
    for permission, answer in zip(PERMISSIONS, answers, strict=True):
        assert answer.status_code in (200, 403), (permission, answer.text)
        if answer.status_code == 200:
            found.add(permission)
        else:
            problem = answer.json()
            assert (problem["code"], problem["permission"]) == ("permission_missing", permission)
    return found


@pytest.mark.parametrize("role", ROLES)
def test_a_member_may_what_the_role_holds(desk: Desk, role: str) -> None:
    ann = desk.person()
    org = desk.org((ann, role))
    assert allowed(desk, org, ann.session) == ROLES[role]


@pytest.mark.parametrize(("role", "key_role"), product(ROLES, ROLES))
def test_a_key_may_what_both_roles_hold(desk: Desk, role: str, key_role: str) -> None:
    ann = desk.person()
    org = desk.org((ann, role))
    assert allowed(desk, org, desk.key(org, ann, key_role)) == ROLES[role] & ROLES[key_role]


@pytest.mark.parametrize(
    ("role", "key_role", "weaker"),
    [("owner", "admin", "admin"), ("admin", "owner", "admin"), ("admin", "admin", "admin")],
)
def test_a_keys_role_is_the_weaker(desk: Desk, role: str, key_role: str, weaker: str) -> None:
    ann = desk.person()
    org = desk.org((ann, role))
    answer = desk.get(path_of("org:read").format(org_id=org), desk.key(org, ann, key_role))
    assert answer.json()["role"] == weaker


def test_scopes_cut_a_key(desk: Desk) -> None:
    ann = desk.person()
    org = desk.org((ann, "admin"))
    scopes = ["instances:read", "instances:erase", "usage:read"]
    assert allowed(desk, org, desk.key(org, ann, "owner", scopes)) == {
        "instances:read",
        "usage:read",
    }
    assert allowed(desk, org, desk.key(org, ann, "owner", [])) == set()


def test_a_role_nobody_knows_holds_nothing(desk: Desk) -> None:
    ann = desk.person()
    org = desk.org((ann, "emperor"))
    assert allowed(desk, org, ann.session) == set()


def test_authorize_comes_before_validate(desk: Desk) -> None:
    ann = desk.person()
    org = desk.org((ann, "auditor"))
    path = f"/v1/orgs/{org}/projects"
    assert desk.post(path, ann.session, json={"nonsense": 1}).status_code == 403
    desk.set_role(org, ann, "admin")
    assert desk.post(path, ann.session, json={"nonsense": 1}).status_code == 422


def test_only_an_owner_passes_where_the_role_is_asked_for(desk: Desk) -> None:
    ann = desk.person()
    org = desk.org((ann, "admin"))
    fresh = desk.session(ann.id, mfa_at=desk.now())
    # The permission is an admin's too, as a role of one's own making may have any.
    assert desk.post(f"/v1/orgs/{org}/close", fresh).json()["code"] == "owner_required"
    desk.set_role(org, ann, "owner")
    assert desk.post(f"/v1/orgs/{org}/close", fresh).status_code == 202
