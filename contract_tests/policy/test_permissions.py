"""Roles, scopes and who may grant what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy import permissions
from control.policy.permissions import ALL, ROLES

EXPECTED = {
    "owner": ALL,
    "admin": ALL - {"org:close", "instances:erase"},
    "developer": {
        "org:read", "members:read", "api-keys:read", "api-keys:write", "projects:read",
        "projects:write", "instances:read", "instances:write", "instances:delete",
        "credentials:reveal", "credentials:rotate", "logs:read", "usage:read", "network:write",
        "queues:read", "queues:write", "backups:read", "backups:write",
        "migrations:read", "migrations:write", "console:open", "data:export",
        "alerts:read", "alerts:write", "teams:read",
    },
    "member": {
        "org:read", "members:read", "teams:read", "projects:read", "instances:read",
        "instances:write", "instances:delete", "credentials:reveal", "credentials:rotate",
        "logs:read", "usage:read",
        "console:open", "data:export",
        "queues:read", "queues:write", "backups:read", "backups:write",
        "migrations:read", "migrations:write", "alerts:read", "alerts:write",
    },
    "auditor": {
        "org:read", "members:read", "teams:read", "api-keys:read", "projects:read",
        "instances:read", "usage:read", "audit:read", "queues:read", "backups:read",
        "migrations:read", "alerts:read", "enterprise:read",
    },
}  # fmt: skip

roles = st.sampled_from(sorted(ROLES))
scopes = st.none() | st.lists(st.sampled_from(sorted(ALL)))


@pytest.mark.parametrize("role", EXPECTED)
def test_each_role_holds_exactly_its_permissions(role: str) -> None:
    assert permissions.of_role(role) == EXPECTED[role]


def test_who_leads_a_team_holds_all_that_developers_do_there_and_leads_it() -> None:
    of_teams = ROLES["developer"] & permissions.TEAM
    assert permissions.TEAM_ROLES["admin"] == of_teams | {"team:write"}
    assert "team:write" not in of_teams
    assert [role for role, held in ROLES.items() if "team:write" in held] == ["owner", "admin"]
    for role in ("operator", "viewer"):
        assert "team:write" not in permissions.of_team_role(role)


def test_there_are_no_other_roles() -> None:
    assert set(ROLES) == set(EXPECTED)
    assert permissions.of_role("root") == frozenset()


@given(role=roles, key_role=roles, scopes=scopes)
def test_a_key_never_has_more_than_owner_role_key_role_or_scopes(
    role: str, key_role: str, scopes: list[str] | None
) -> None:
    rights = permissions.of_role(role) & permissions.granted(key_role, scopes)
    for permission in ALL:
        expected = (
            permission in ROLES[role]
            and permission in ROLES[key_role]
            and (scopes is None or permission in scopes)
        )
        assert (permission in rights) == expected


def test_an_empty_list_of_scopes_leaves_nothing() -> None:
    assert permissions.granted("owner", []) == frozenset()
