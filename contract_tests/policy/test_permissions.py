"""Roles, scopes and who may grant what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy import permissions
from control.policy.permissions import ALL, DEFAULTS, ROLES

EXPECTED = {
    "owner": ALL,
    "admin": ALL - {"org:close", "instances:erase"},
    "developer": {
        "org:read", "members:read", "api-keys:read", "api-keys:write", "projects:read",
        "projects:write", "instances:read", "instances:write", "instances:delete",
        "credentials:reveal", "credentials:rotate", "logs:read", "usage:read", "network:write",
        "queues:read", "queues:write", "backups:read", "backups:write",
        "migrations:read", "migrations:write", "console:open", "data:export",
        "alerts:read", "alerts:write", "teams:read", "roles:read", "approvals:read",
    },
    "member": {
        "org:read", "members:read", "teams:read", "roles:read", "projects:read", "instances:read",
        "instances:write", "instances:delete", "credentials:reveal", "credentials:rotate",
        "logs:read", "usage:read",
        "console:open", "data:export",
        "queues:read", "queues:write", "backups:read", "backups:write",
        "migrations:read", "migrations:write", "alerts:read", "alerts:write", "approvals:read",
    },
    "auditor": {
        "sso:read",
        "org:read", "members:read", "teams:read", "api-keys:read", "projects:read",
        "instances:read", "usage:read", "audit:read", "queues:read", "backups:read",
        "migrations:read", "alerts:read", "roles:read", "service-accounts:read",
        "support-grants:read", "approvals:read", "enterprise:read", "webhooks:read", "siem:read",
        "billing:read",
    },
}  # fmt: skip

LEADS = {"team:write", "project-members:write", "approvals:decide"}
roles = st.sampled_from(sorted(ROLES))
scopes = st.none() | st.lists(st.sampled_from(sorted(ALL)))


@pytest.mark.parametrize("role", EXPECTED)
def test_each_role_holds_exactly_its_permissions(role: str) -> None:
    assert DEFAULTS.of_role(role) == EXPECTED[role]


def test_who_leads_a_team_holds_all_that_developers_do_there_and_leads_it() -> None:
    of_teams = ROLES["developer"] & permissions.TEAM
    assert permissions.TEAM_ROLES["admin"] == of_teams | LEADS
    assert not LEADS & of_teams
    for one in LEADS:
        assert [role for role, held in ROLES.items() if one in held] == ["owner", "admin"]
    for role in ("operator", "viewer"):
        assert not LEADS & DEFAULTS.of_team_role(role)


def test_there_are_no_other_roles() -> None:
    assert set(ROLES) == set(EXPECTED)
    assert DEFAULTS.of_role("root") == frozenset()


@given(role=roles, key_role=roles, scopes=scopes)
def test_a_key_never_has_more_than_owner_role_key_role_or_scopes(
    role: str, key_role: str, scopes: list[str] | None
) -> None:
    rights = DEFAULTS.of_role(role) & DEFAULTS.granted(key_role, scopes)
    for permission in ALL:
        expected = (
            permission in ROLES[role]
            and permission in ROLES[key_role]
            and (scopes is None or permission in scopes)
        )
        assert (permission in rights) == expected


def test_an_empty_list_of_scopes_leaves_nothing() -> None:
    assert DEFAULTS.granted("owner", []) == frozenset()


def test_a_changed_role_holds_what_it_was_changed_to_and_no_other_does() -> None:
    stored = {
        "org:member": ["instances:read", "no:such"],
        "team:viewer": ["alerts:read", "org:close"],
        "org:owner": [],
        "team:member": ["alerts:read"],
    }
    sets = permissions.role_sets(stored)
    assert sets.of_role("member") == {"instances:read"}
    assert sets.of_team_role("viewer") == {"alerts:read"}
    assert sets.of_role("owner") == ALL
    assert sets.of_role("developer") == ROLES["developer"]
    assert sets.of_role("viewer") == frozenset()
    assert sets.granted("member", None) == {"instances:read"}
    assert sets.granted("member", ["instances:read", "org:read"]) == {"instances:read"}
    assert permissions.role_sets(None) == permissions.role_sets({}) == DEFAULTS


def test_nothing_that_leads_to_data_or_to_rights_can_be_granted_to_support() -> None:
    changing = {one for one in permissions.SUPPORT if not one.endswith(":read")}
    assert changing == {"instances:write", "backups:write", "alerts:write"}
    of_keys = {"api-keys:read", "service-accounts:read", "support-grants:read", "queues:read"}
    assert not permissions.SUPPORT & of_keys
    assert permissions.SUPPORT <= ALL


def test_a_role_in_a_project_is_one_of_a_team_at_most() -> None:
    for held in permissions.PROJECT_ROLES.values():
        assert held <= permissions.TEAM - {"team:write"}
    assert permissions.of_project_role("lord") == frozenset()
