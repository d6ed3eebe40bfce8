"""Why somebody can do something, or cannot."""

import difflib
from typing import Any

from control.access import role_holders
from control.boundary.authorization import UNGRANTED
from control.policy.rights import RoleGrant
from handlers.calls import OrgCall
from handlers.roles import explanations
from specserver import Invalid
from storage.access import projects, teams
from storage.access.scopes import RecordPlace
from storage.errors import RecordNotFound
from storage.instances import instances
from storage.roles import roles
from storage.sso import scim_groups

Body = dict[str, Any]


def explain(
    call: OrgCall,
    user_id: str,
    operation: str,
    instance_id: str | None = None,
    project_id: str | None = None,
    team_id: str | None = None,
) -> Body:
    asked = _asked(call, operation)
    member = role_holders.of_member(call.db, call.org.id, user_id)
    if member is None:
        raise RecordNotFound("member not found")
    place = _place(call, instance_id, project_id, team_id)
    permission = None if asked["permission"] in UNGRANTED else asked["permission"]
    gives = [one for one in member.grants if permission in one.permissions]
    by = [one for one in gives if one.holds_at(place)]
    shown = [_shown(one, _names(call, one)) for one in by]
    told = explanations.told(permission, shown, elsewhere=bool(gives))
    return {"user_id": user_id, "operation": operation, "needs": _needs(asked), **told}


def _asked(call: OrgCall, operation: str) -> Body:
    """What the document asks for where the operation is called."""
    known = call.exchange.operations.get(operation)
    if known is not None:
        return dict(known.extension("authorize"))
    near = difflib.get_close_matches(operation, call.exchange.operations, 3, 0.5)
    hint = f"; did you mean {' or '.join(near)}" if near else ""
    message = f"must be the id of an operation of this API, such as instances.create{hint}"
    raise Invalid(
        f"operation {message}",
        errors=[{"parameter": "operation", "keyword": "operation", "message": message}],
    )


def _place(
    call: OrgCall, instance_id: str | None, project_id: str | None, team_id: str | None
) -> RecordPlace | None:
    """Of a record that the caller can see: what is asked for others tells of it."""
    if instance_id is not None:
        place = instances.fetch(call.db, call.org.id, instance_id).place
        call.require_shown("instances:read", place)
        return place
    if project_id is not None:
        place = projects.fetch(call.db, call.org.id, project_id).place
        call.require_shown("projects:read", place)
        return place
    return None if team_id is None else teams.fetch(call.db, call.org.id, team_id).place


def _names(call: OrgCall, grant: RoleGrant) -> dict[str, str]:
    """By the ids that the organization's records have."""
    if grant.source == "scim_group":
        return {grant.name: scim_groups.fetch(call.db, call.org.id, grant.name).display_name}
    return roles.names(call.db, call.org.id, [grant.name])


def _shown(grant: RoleGrant, names: dict[str, str]) -> Body:
    custom = grant.source == "custom_role"
    return {
        "source": grant.source,
        "role": names.get(grant.name, grant.name),
        "role_id": grant.name if custom else None,
        "team_id": grant.team_id,
        "project_id": grant.project_id,
    }


def _needs(asked: Body) -> list[str]:
    assurance = asked.get("assurance", "none") != "none"
    needs = {
        "owner": asked.get("role") == "owner",
        "session": asked.get("session") == "user",
        "second_factor": assurance,
    }
    return [name for name, needed in needs.items() if needed]
