"""The permissions there are, and which of them each predefined role holds."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

CATALOGUE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "org:read": "see the organization and its settings",
        "org:write": "change the organization's name and settings",
        "org:close": "close the organization",
        "members:read": "see members and their roles",
        "members:write": "invite, change and remove members",
        "api-keys:read": "see API keys, never their secrets",
        "api-keys:write": "create and revoke API keys",
        "projects:read": "see projects",
        "projects:write": "create, change and delete projects",
        "instances:read": "see instances, their changes, capacity and certificates",
        "instances:write": "create, change, pause and resume instances",
        "instances:delete": "delete instances; their data is kept for the plan's retention",
        "instances:erase": "erase instances at once, backups included",
        "network:write": "replace allow-lists and the authorities of client certificates",
        "console:open": "open the SQL console of an instance",
        "credentials:reveal": "see an instance's credentials, through a one-time URL",
        "credentials:rotate": "create a new credential for an instance",
        "queues:read": "see the queues of an instance and how full they are",
        "queues:write": "create and delete queues, and send, read, delete and archive messages",
        "logs:read": "read engine logs",
        "usage:read": "see metrics and usage",
        "audit:read": "read the audit log",
    }
)

ALL: Final = frozenset(CATALOGUE)

_READ_ALL = frozenset(name for name in CATALOGUE if name.endswith(":read"))
_MEMBER = frozenset(
    {
        "org:read",
        "members:read",
        "projects:read",
        "instances:read",
        "instances:write",
        "instances:delete",
        "console:open",
        "credentials:reveal",
        "credentials:rotate",
        "queues:read",
        "queues:write",
        "logs:read",
        "usage:read",
    }
)

# Strongest first, as they are shown.
ROLES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "owner": ALL,
        "admin": ALL - {"org:close", "instances:erase"},
        "developer": _MEMBER
        | {"api-keys:read", "api-keys:write", "projects:write", "network:write"},
        "member": _MEMBER,
        # Logs are left out: engines write statements, and so data, into them.
        "auditor": _READ_ALL - {"logs:read"},
    }
)


def of_role(role: str) -> frozenset[str]:
    """Nothing for a role that does not exist: an unknown name must not grant."""
    return ROLES.get(role, frozenset())


def effective(role: str, key_role: str, scopes: Iterable[str] | None) -> frozenset[str]:
    """The rights of an API key: its owner's role in the org, cut by the key's role and scopes.

    No scopes (None) restrict nothing; an empty list leaves nothing.
    """
    rights = of_role(role) & of_role(key_role)
    return rights if scopes is None else rights & frozenset(scopes)


def may_grant(granter: frozenset[str], role: str) -> bool:
    """Whether someone with these rights may give the role to anyone, themselves included."""
    return role in ROLES and of_role(role) <= granter


def unknown_scopes(scopes: Iterable[str]) -> list[str]:
    return sorted(set(scopes) - ALL)
