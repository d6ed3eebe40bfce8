"""SCIM groups: which roles a group of the identity provider gives to whoever is in it."""

from typing import Any

from control.boundary import AuditedChanges
from control.policy import rights
from control.policy.rights import GroupRoles, HeldRoles
from handlers import paging
from handlers.access import reach
from handlers.calls import OrgCall
from handlers.sso import scim_views
from storage.access import teams
from storage.sso import scim_groups
from storage.sso.scim_groups import ScimGroup

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    found = scim_groups.page(call.db, call.org.id, limit=limit, after=after)
    sizes = scim_groups.sizes(call.db, call.org.id, [one.id for one in found.items])
    return paging.page(call, found, lambda one: scim_views.group(one, sizes[one.id]))


def update(call: OrgCall, scim_group: ScimGroup, body: Body) -> Body:
    """What it gave and what it gives must be the caller's to give: they may be in it themselves."""
    changes = AuditedChanges.of(scim_group, ["org_role", "team_id", "team_role"])
    _check_given(call, scim_group)
    team = body.get("team", _team(scim_group)) or {}
    if team:
        teams.fetch(call.db, call.org.id, team["team_id"], lock=True)
    org_role = body.get("org_role", scim_group.org_role)
    scim_group.grant(org_role, team.get("team_id"), team.get("role"))
    _check_given(call, scim_group)
    call.audit(target=scim_group.id, changes=changes)
    sizes = scim_groups.sizes(call.db, call.org.id, [scim_group.id])
    return scim_views.group(scim_group, sizes[scim_group.id])


def _team(group: ScimGroup) -> Body | None:
    return {"team_id": group.team_id, "role": group.team_role} if group.team_id else None


def _check_given(call: OrgCall, group: ScimGroup) -> None:
    roles = GroupRoles(group.id, group.org_role, group.team_id, group.team_role)
    everyone = teams.everyone_of(call.org.id)
    given = rights.grants_of_group(roles, HeldRoles(""), reach.sets_of(call), everyone)
    reach.check_given(call, rights.combined(given), "the group gives")
