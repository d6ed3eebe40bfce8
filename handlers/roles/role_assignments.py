"""Assignments of custom roles: who has one, in the whole organization or in a team."""

from typing import Any

from control.policy import permissions, quotas
from control.policy.rights import Rights
from control.policy.violations import refuse, wrong
from handlers import paging
from handlers.access import reach
from handlers.calls import OrgCall
from handlers.roles import views
from specserver import Reply
from storage.access import memberships, teams
from storage.roles import roles
from storage.roles.roles import CustomRole, RoleAssignment

Body = dict[str, Any]


def list_(call: OrgCall, custom_role: CustomRole, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    found = roles.assignments(call.db, custom_role, limit=limit, after=after)
    return paging.page(call, found, views.assignment)


def create(call: OrgCall, custom_role: CustomRole, body: Body) -> Reply:
    user_id, team_id = body["user_id"], body.get("team_id")
    memberships.fetch(call.db, call.org.id, user_id, lock=True)
    if team_id is not None:
        teams.fetch(call.db, call.org.id, team_id, lock=True)
        _refuse_of_org(custom_role)
    reach.check_given(call, _given(custom_role, team_id), "the role has")
    refuse(quotas.check_one_more_assignment(roles.count_assignments(call.db, call.org.id)))
    made = roles.assign(call.db, custom_role, user_id, team_id, created_by=call.caller.id)
    call.audit(target=made.id, detail=_told(made))
    return Reply.created(views.assignment(made))


def delete(call: OrgCall, custom_role: CustomRole, role_assignment: RoleAssignment) -> Reply:
    reach.check_given(call, _given(custom_role, role_assignment.team_id), "the role has")
    call.audit(target=role_assignment.id, detail=_told(role_assignment))
    call.db.delete(role_assignment)
    return Reply.no_content()


def _given(role: CustomRole, team_id: str | None) -> Rights:
    held = frozenset(role.permissions)
    return Rights(held) if team_id is None else Rights(in_teams={team_id: held})


def _told(assignment: RoleAssignment) -> Body:
    return {
        "role_id": assignment.role_id,
        "user_id": assignment.user_id,
        "team_id": assignment.team_id,
    }


def _refuse_of_org(role: CustomRole) -> None:
    """What would give nothing in a team is refused, and not given in part."""
    of_org = sorted(frozenset(role.permissions) - permissions.TEAM)
    if of_org:
        message = (
            "must be left out: the role holds permissions of the organization, which no team has:"
            f" {', '.join(of_org)}; assign a role without them"
        )
        refuse([wrong("team_id", "scope", message)])
