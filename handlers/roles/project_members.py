"""Members of a project: who has a role in it, beside what they have in its team."""

from typing import Any

from control.boundary import AuditedChanges
from control.policy import permissions
from handlers import paging
from handlers.access import reach
from handlers.access.plan_features import require_custom_roles
from handlers.calls import OrgCall
from handlers.roles import views
from specserver import Reply
from storage.access.memberships import Membership
from storage.access.projects import Project
from storage.roles import project_members

Body = dict[str, Any]


def list_(call: OrgCall, project: Project, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    found = project_members.page(call.db, project, limit=limit, after=after)
    return paging.page(call, found, views.project_member)


def set_(call: OrgCall, project: Project, member: Membership, body: Body) -> Body:
    require_custom_roles(call)
    _check_reach(call, project, body["role"])
    former = project_members.find_role(call.db, project, member.user_id)
    if former is not None:
        _check_reach(call, project, former)
    put = project_members.put(call.db, project, member.user_id, body["role"])
    changes = AuditedChanges.between({"role": former}, {"role": put.role})
    told = {"user_id": member.user_id, "role": put.role}
    call.audit(target=project.id, detail=told, changes=changes)
    return views.project_member(put)


def remove(call: OrgCall, project: Project, member: Membership) -> Reply:
    was = project_members.fetch(call.db, project, member.user_id)
    _check_reach(call, project, was.role)
    project_members.remove(call.db, project, member.user_id)
    call.audit(target=project.id, detail={"user_id": member.user_id, "role": was.role})
    return Reply.no_content()


def _check_reach(call: OrgCall, project: Project, role: str) -> None:
    beyond = permissions.of_project_role(role) - call.caller.rights.held_at(project.place)
    reach.refuse(beyond, f"the role {role} has")
