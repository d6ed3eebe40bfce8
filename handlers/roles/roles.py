"""Custom roles: named sets of permissions that the organization made."""

from typing import Any

from control.policy import quotas
from control.policy.rights import Rights
from control.policy.violations import refuse
from handlers import paging
from handlers.access import reach
from handlers.access.plan_features import require_custom_roles
from handlers.calls import OrgCall
from handlers.roles import views
from specserver import Reply
from storage.roles import roles
from storage.roles.roles import CustomRole

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    found = roles.page(call.db, call.org.id, limit=limit, after=paging.after(call, cursor))
    return paging.page(call, found, views.role)


def create(call: OrgCall, body: Body) -> Reply:
    require_custom_roles(call)
    beyond = frozenset(body["permissions"]) - call.caller.rights.anywhere
    reach.refuse(beyond, "the role would have")
    refuse(quotas.check_one_more_role(roles.count(call.db, call.org.id)))
    role = roles.create(
        call.db,
        call.org.id,
        name=body["name"],
        permissions=body["permissions"],
        created_by=call.caller.id,
    )
    call.audit(target=role.id, detail={"name": role.name, "permissions": role.permissions})
    return Reply.created(views.role(role))


def delete(call: OrgCall, custom_role: CustomRole) -> Reply:
    reach.check_given(call, Rights(frozenset(custom_role.permissions)), "the role has")
    ended = roles.delete(call.db, custom_role)
    call.audit(target=custom_role.id, detail={"name": custom_role.name, "assignments_ended": ended})
    return Reply.no_content()
