"""x-authorize, exhaustively: every role, key role and permission."""

from itertools import product

import pytest

from contract_tests.boundary.document import PERMISSIONS, path_of
from contract_tests.boundary.small_api import SmallApi
from contract_tests.by_day import one_in
from control.policy.permissions import ROLES


def allowed(api: SmallApi, org: str, token: str) -> set[str]:
    """The permissions whose operation lets the token in; anything but 200 or 403 fails."""
    answers = api.together(
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
def test_a_member_may_what_the_role_holds(api: SmallApi, role: str) -> None:
    ann = api.person()
    org = api.org((ann, role))
    assert allowed(api, org, ann.session) == ROLES[role]


@pytest.mark.parametrize(("role", "key_role"), one_in(3, product(ROLES, ROLES), several=True))
def test_a_key_may_what_both_roles_hold(api: SmallApi, role: str, key_role: str) -> None:
    ann = api.person()
    org = api.org((ann, role))
    assert allowed(api, org, api.key(org, ann, key_role)) == ROLES[role] & ROLES[key_role]


@pytest.mark.parametrize(
    ("role", "key_role", "weaker"),
    [("owner", "admin", "admin"), ("admin", "owner", "admin"), ("admin", "admin", "admin")],
)
def test_a_keys_role_is_the_weaker(api: SmallApi, role: str, key_role: str, weaker: str) -> None:
    ann = api.person()
    org = api.org((ann, role))
    answer = api.get(path_of("org:read").format(org_id=org), api.key(org, ann, key_role))
    assert answer.json()["role"] == weaker


def test_scopes_cut_a_key(api: SmallApi) -> None:
    ann = api.person()
    org = api.org((ann, "admin"))
    scopes = ["instances:read", "instances:erase", "usage:read"]
    assert allowed(api, org, api.key(org, ann, "owner", scopes)) == {
        "instances:read",
        "usage:read",
    }
    assert allowed(api, org, api.key(org, ann, "owner", [])) == set()


def test_a_role_nobody_knows_holds_nothing(api: SmallApi) -> None:
    ann = api.person()
    org = api.org((ann, "emperor"))
    assert allowed(api, org, ann.session) == set()


def test_authorize_comes_before_validate(api: SmallApi) -> None:
    ann = api.person()
    org = api.org((ann, "auditor"))
    path = f"/v1/orgs/{org}/projects"
    assert api.post(path, ann.session, json={"nonsense": 1}).status_code == 403
    api.set_role(org, ann, "admin")
    assert api.post(path, ann.session, json={"nonsense": 1}).status_code == 422


def test_only_an_owner_passes_where_the_role_is_asked_for(api: SmallApi) -> None:
    ann = api.person()
    org = api.org((ann, "admin"))
    fresh = api.session(ann.id, mfa_at=api.now())
    # The permission is an admin's too, as a role of one's own making may have any.
    assert api.post(f"/v1/orgs/{org}/close", fresh).json()["code"] == "owner_required"
    api.set_role(org, ann, "owner")
    assert api.post(f"/v1/orgs/{org}/close", fresh).status_code == 202
