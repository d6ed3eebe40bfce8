"""Projects: groups of instances in an organization."""

from typing import Any

from control.boundary import AuditedChanges
from control.policy import permissions, quotas
from control.policy.plans import PLANS
from control.policy.violations import refuse
from handlers import paging
from handlers.access import reach, remaining, slugs, views
from handlers.calls import OrgCall
from handlers.instances import needing_approval
from specserver import Reply
from storage.access import projects, teams
from storage.access.projects import Project
from storage.access.scopes import RecordPlace
from storage.errors import StateConflict
from storage.events import alerts
from storage.instances import of_projects, of_teams
from storage.roles import project_members

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    found = projects.page(
        call.db, call.org.id, scope=call.scope, limit=limit, after=paging.after(call, cursor)
    )
    return paging.page(call, found, views.project)


def create(call: OrgCall, body: Body) -> Reply:
    team_id = _owning(call, body.get("team_id", teams.everyone_of(call.org.id)))
    held = projects.count(call.db, call.org.id)
    refuse(quotas.check_one_more_project(PLANS[call.org.plan], held))
    slug = body.get("slug") or slugs.derive(
        body["name"], "project", lambda slug: _is_taken(call, slug)
    )
    project = projects.create(call.db, call.org.id, name=body["name"], slug=slug, team_id=team_id)
    told = {"name": project.name, "slug": project.slug, "team_id": team_id}
    call.audit(target=project.id, detail=told)
    location = f"/v1/orgs/{call.org.id}/projects/{project.id}"
    return Reply.created(views.project(project), location)


def get(_call: OrgCall, project: Project) -> Body:
    return views.project(project)


def update(call: OrgCall, project: Project, body: Body) -> Body:
    told, changes = dict(body), AuditedChanges.of(project, body)
    if body.get("team_id", project.team_id) != project.team_id:
        told["from_team_id"] = project.team_id
        _move(call, project, body["team_id"])
    for member, value in body.items():
        setattr(project, member, value)
    call.audit(target=project.id, detail=told, changes=changes)
    call.db.flush()
    return views.project(project)


def delete(call: OrgCall, project: Project) -> Reply:
    _refuse_while_used(of_projects.count_by_status(call.db, call.org.id, project.id))
    project_members.remove(call.db, project)
    of_projects.leave_project(call.db, call.org.id, project.id)
    call.audit(target=project.id, detail={"name": project.name, "slug": project.slug})
    call.db.delete(project)
    return Reply.no_content()


def _owning(call: OrgCall, team_id: str) -> str:
    """The team that is to own a project, if the caller may have one there."""
    teams.fetch(call.db, call.org.id, team_id)
    call.require("projects:write", RecordPlace(team_id))
    return team_id


def _move(call: OrgCall, project: Project, team_id: str) -> None:
    """With all that belongs to it, at once: nobody sees half of it in either team."""
    _owning(call, team_id)
    if of_projects.has_any(call.db, call.org.id, project.id):
        _check_reach(call, project, team_id)
        needing_approval.check_move(call, team_id)
    of_teams.follow_project(call.db, call.org.id, project.id, team_id)
    alerts.follow_project(call.db, call.org.id, project.id, team_id)


def _check_reach(call: OrgCall, project: Project, team_id: str) -> None:
    """Nobody gets at instances, or at data, by moving them to where they have more rights."""
    own, there = call.caller.rights, project.place._replace(team_id=team_id)
    more = (own.held_at(there) - own.held_at(project.place)) & permissions.TEAM_ROLES["operator"]
    reach.refuse(more, "by moving the project you would have")


def _refuse_while_used(by_status: dict[str, int]) -> None:
    """StateConflict that says what is in the way, and how to get it out of it."""
    held = remaining.instances(by_status)
    if held:
        raise StateConflict(f"cannot delete a project that has instances: {', '.join(held)}")


def _is_taken(call: OrgCall, slug: str) -> bool:
    return projects.is_slug_taken(call.db, call.org.id, slug)
