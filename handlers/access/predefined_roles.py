"""Predefined roles: what each holds."""

from typing import Any

from control.policy import permissions
from handlers.calls import OrgCall

Body = dict[str, Any]


def list_(_call: OrgCall) -> Body:
    of_org = [_shown("org", role, held) for role, held in permissions.ROLES.items()]
    of_teams = [_shown("team", role, held) for role, held in permissions.TEAM_ROLES.items()]
    return {"items": of_org + of_teams, "next_cursor": None}


def _shown(scope: str, role: str, held: frozenset[str]) -> Body:
    return {
        "role": role,
        "scope": scope,
        "default_permissions": sorted(held),
        "permissions": sorted(held),
    }
