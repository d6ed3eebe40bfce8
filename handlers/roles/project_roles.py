"""Roles in projects: all of them that the caller can see."""

from typing import Any

from handlers import paging
from handlers.calls import OrgCall
from handlers.roles import views
from storage.roles import project_members

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    found = project_members.page_of_org(
        call.db,
        call.org.id,
        scope=call.scope_of("projects:read"),
        limit=limit,
        after=paging.after(call, cursor),
    )
    return paging.page(call, found, views.project_member)
