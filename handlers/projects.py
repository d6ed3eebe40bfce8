"""Projects: groups of instances in an organization."""

from typing import Any

from sqlalchemy import exists, select

from control.policy.plans import PLANS
from handlers import slugs, views
from handlers.calls import OrgCall
from specserver import Invalid, Reply
from storage import instances, projects
from storage.errors import Conflict
from storage.projects import Project

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    found = projects.page(call.db, call.org.id, limit=limit, after=views.after(call, cursor))
    return views.page(call, found, views.project)


def create(call: OrgCall, body: Body) -> Reply:
    _check_quota(call)
    slug = body.get("slug") or slugs.derive(
        body["name"], "project", lambda slug: _is_taken(call, slug)
    )
    project = projects.create(call.db, call.org.id, name=body["name"], slug=slug)
    call.audit(target=project.id, name=project.name, slug=project.slug)
    location = f"/v1/orgs/{call.org.id}/projects/{project.id}"
    return Reply.created(views.project(project), location)


def get(call: OrgCall, project_id: str) -> Body:
    return views.project(projects.fetch(call.db, call.org.id, project_id))


def update(call: OrgCall, project_id: str, body: Body) -> Body:
    project = projects.fetch(call.db, call.org.id, project_id)
    for member, value in body.items():
        setattr(project, member, value)
    call.audit(target=project.id, **body)
    call.db.flush()
    return views.project(project)


def delete(call: OrgCall, project_id: str) -> Reply:
    project = projects.fetch(call.db, call.org.id, project_id)
    for status in (None, "deleted", "erased"):
        held = instances.page(
            call.db, call.org.id, limit=1, after=None, status=status, project_id=project.id
        )
        if held.items:
            state = held.items[0].status
            raise Conflict(f"cannot delete a project that holds an instance that is {state}")
    call.audit(target=project.id, name=project.name, slug=project.slug)
    call.db.delete(project)
    return Reply.no_content()


def _is_taken(call: OrgCall, slug: str) -> bool:
    same = select(exists().where(Project.org_id == call.org.id, Project.slug == slug))
    return bool(call.db.scalar(same))


def _check_quota(call: OrgCall) -> None:
    plan = PLANS[call.org.plan]
    if plan.projects_max is None:
        return
    call.db.refresh(call.org, with_for_update=True)
    held = projects.page(call.db, call.org.id, limit=plan.projects_max, after=None)
    if len(held.items) >= plan.projects_max:
        message = f"the {plan.id} plan allows {plan.projects_max} projects and all are used"
        raise Invalid(message, errors=[{"pointer": "", "keyword": "quota", "message": message}])
