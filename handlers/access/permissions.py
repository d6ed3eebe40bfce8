"""Permissions: those there are, and what a caller may do in an organization."""

from typing import Any

from control.policy import permissions
from control.policy.rights import Part
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
    return {
        "org_id": call.org.id,
        "role": call.caller.role,
        "permissions": sorted(rights.anywhere),
        "in_org": sorted(rights.everywhere),
        "in_teams": _each("team_id", rights.in_teams),
        "in_projects": _each("project_id", rights.in_projects),
        "in_instances": _each("instance_id", rights.in_instances),
    }


def _each(name: str, part: Part) -> list[Body]:
    return [{name: one, "permissions": sorted(held)} for one, held in sorted(part.items()) if held]
