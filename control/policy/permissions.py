"""The permissions there are, and which of them each predefined role holds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

CATALOGUE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "org:read": "see the organization and its settings",
        "org:write": "change the organization's name and settings",
        "org:close": "close the organization",
        "members:read": "see members and their roles",
        "members:write": "invite, change and remove members",
        "roles:read": "see roles, who holds them, and what they let somebody do",
        "roles:write": "change predefined roles, and create, delete and assign custom ones",
        "service-accounts:read": "see service accounts",
        "service-accounts:write": (
            "create and disable service accounts, create keys, and let CI jobs sign in as them"
        ),
        "support-grants:read": "see what support was given access to",
        "support-grants:write": "give support access for a time, and end it",
        "api-keys:read": "see API keys, never their secrets",
        "api-keys:write": "create and revoke API keys",
        "teams:read": "see teams and who is in them",
        "teams:write": "create, change and delete teams",
        "team:write": "rename a team, set its cost centre and decide who is in it",
        "enterprise:read": "see the enterprise, its terms and sums of its subsidiaries",
        "enterprise:write": "make the organization a parent, and attach and detach subsidiaries",
        "projects:read": "see projects",
        "projects:write": "create, change and delete projects",
        "project-members:write": "decide who has a role in a project",
        "instances:read": "see instances, their changes, capacity and certificates",
        "instances:write": "create, change, pause and resume instances",
        "instances:delete": "delete instances; their data is kept for the plan's retention",
        "instances:erase": "erase instances at once, backups included",
        "approvals:read": "see your own orders that need approval, and those that you can decide",
        "approvals:decide": "approve and deny orders of instances, and order without approval",
        "network:write": "replace allow-lists and the authorities of client certificates",
        "console:open": "open the SQL console of an instance",
        "credentials:reveal": "see an instance's credentials, through a one-time URL",
        "credentials:rotate": "create a new credential for an instance",
        "backups:read": "see backups, restores and backup settings",
        "backups:write": "make, delete and restore backups, and change backup settings",
        "migrations:read": "see migrations into instances",
        "migrations:write": "cancel and cut over migrations into instances, and with "
        "`credentials:reveal` start them",
        "data:export": "download dumps and backups, through a one-time URL",
        "queues:read": "see the queues of an instance and how full they are",
        "queues:write": "create and delete queues, and send, read, delete and archive messages",
        "logs:read": "read engine logs",
        "alerts:read": "see alerts",
        "alerts:write": "acknowledge alerts",
        "usage:read": "see metrics and usage",
        "audit:read": "read the audit log",
        "billing:read": "see the spending cap, credits and invoices",
        "billing:write": "set the spending cap, apply for credits, and create the referral code",
        "siem:read": "see where the audit log and events are sent",
        "siem:write": "decide where the audit log and events are sent",
        "webhooks:read": "see webhook endpoints and what was delivered to them",
        "webhooks:write": "register, change, test and delete webhook endpoints",
    }
)

ALL: Final = frozenset(CATALOGUE)

_READ_ALL = frozenset(name for name in CATALOGUE if name.endswith(":read"))
# Logs are left out of what only reads: engines write statements, and so data, into them.
_VIEWER = frozenset(
    {
        *("projects:read", "instances:read", "backups:read", "migrations:read"),
        *("queues:read", "usage:read", "alerts:read"),
    }
)
_OPERATOR = _VIEWER | {
    "instances:write",
    "instances:delete",
    "console:open",
    "credentials:reveal",
    "credentials:rotate",
    "backups:write",
    "migrations:write",
    "data:export",
    "queues:write",
    "logs:read",
    "alerts:write",
}
_DEVELOPER = _OPERATOR | {"projects:write", "network:write"}

# What roles hold in a team, strongest first. Who leads a team decides who is in it and what is
# ordered for it; that developers hold their role in Everyone makes them no leads of it.
TEAM_ROLES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "admin": _DEVELOPER | {"team:write", "project-members:write", "approvals:decide"},
        "operator": _OPERATOR,
        "viewer": _VIEWER,
    }
)
# What roles hold in a project alone, strongest first.
PROJECT_ROLES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "admin": _DEVELOPER | {"project-members:write"},
        "developer": _OPERATOR | {"network:write"},
        "viewer": _VIEWER,
    }
)
TEAM: Final = TEAM_ROLES["admin"]
"""What is held for the records of a team; all else is held for an organization alone."""

_MEMBER = frozenset({"org:read", "members:read", "teams:read", "roles:read", "approvals:read"})
# Strongest first, as they are shown.
ROLES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "owner": ALL,
        "admin": ALL - {"org:close", "instances:erase"},
        "developer": _DEVELOPER | _MEMBER | {"api-keys:read", "api-keys:write"},
        "member": _OPERATOR | _MEMBER,
        "auditor": _READ_ALL - {"logs:read"},
    }
)
EVERY_TEAM: Final = frozenset({"owner", "admin", "auditor"})
"""Roles that hold in every team what the others hold in Everyone."""


# Not what leads to data or to more rights: support is to see what is wrong, and to mend that.
SUPPORT: Final = frozenset(
    {
        *("org:read", "members:read", "teams:read", "roles:read", "projects:read"),
        *("instances:read", "instances:write", "backups:read", "backups:write"),
        *("migrations:read", "logs:read", "alerts:read", "alerts:write"),
        *("usage:read", "audit:read"),
    }
)
"""What may be granted to support."""


@dataclass(frozen=True)
class RoleSets:
    """What the predefined roles of an organization hold; it has changed those of `changed`."""

    changed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By scope and role, such as `org:member` and `team:viewer`."""

    def of_role(self, role: str) -> frozenset[str]:
        """Nothing for a role that does not exist: an unknown name must not grant."""
        return self._of("org", role, ROLES)

    def of_team_role(self, role: str) -> frozenset[str]:
        return self._of("team", role, TEAM_ROLES)

    def granted(self, key_role: str, scopes: Iterable[str] | None) -> frozenset[str]:
        """What an API key leaves of its owner's rights: what both its role and its scopes hold.

        No scopes (None) restrict nothing; an empty list leaves nothing.
        """
        held = self.of_role(key_role)
        return held if scopes is None else held & frozenset(scopes)

    def _of(self, scope: str, role: str, defaults: Mapping[str, frozenset[str]]) -> frozenset[str]:
        return self.changed.get(f"{scope}:{role}", defaults.get(role, frozenset()))


DEFAULTS: Final = RoleSets()
FIXED: Final = "org:owner"
"""The one that no organization changes: somebody must always be able to do everything."""


def role_sets(stored: Mapping[str, Iterable[str]] | None) -> RoleSets:
    """As the organization's record has them; what there is no more, or not yet, grants nothing."""
    if not stored:
        return DEFAULTS
    known = {"org": ALL, "team": TEAM}
    return RoleSets(
        {
            name: known[name.partition(":")[0]] & frozenset(held)
            for name, held in stored.items()
            if name != FIXED and name.partition(":")[0] in known
        }
    )


def of_project_role(role: str) -> frozenset[str]:
    return PROJECT_ROLES.get(role, frozenset())
