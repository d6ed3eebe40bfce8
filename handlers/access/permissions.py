"""Permissions: those there are, and what a caller may do in an organization."""

from typing import Any

from control.policy import permissions
from handlers.calls import OrgCall

Body = dict[str, Any]


def list_(_call: OrgCall) -> Body:
    known = [
        {
            "name": name,
            "allows": allows,
            "scope": "team" if name in permissions.TEAM else "org",
        }
        for name, allows in sorted(permissions.CATALOGUE.items())
    ]
    return {"items": known, "next_cursor": None}


def mine(call: OrgCall) -> Body:
    rights = call.caller.rights
    in_teams = [
        {"team_id": team_id, "permissions": sorted(held)}
        for team_id, held in sorted(rights.in_teams.items())
        if held
    ]
    return {
        "org_id": call.org.id,
        "role": call.caller.role,
        "permissions": sorted(rights.anywhere),
        "in_org": sorted(rights.everywhere),
        "in_teams": in_teams,
    }
