"""Members: who belongs to an organization, in which role."""

from typing import Any

from control.access import departures, seats
from control.boundary import AuditedChanges
from control.boundary.authorization import lacking
from handlers import paging
from handlers.access import joining, reach, views
from handlers.calls import OrgCall
from specserver import Reply
from storage.access import memberships, users
from storage.access.memberships import Membership

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    found = memberships.page(call.db, call.org.id, limit=limit, after=paging.after(call, cursor))
    known = users.of_ids(call.db, [one.user_id for one in found.items])
    listed = paging.page(call, found, lambda one: views.member(one, known[one.user_id]))
    return {**listed, "seats": seats.taken(call.db, call.org, call.now)}


def update(call: OrgCall, person: Membership, body: Body) -> Body:
    reach.check_member(call, person.user_id)
    reach.check_role(call, body["role"])
    if body["role"] != "owner":
        departures.refuse_last_owner(call.db, person)
    changes = AuditedChanges.of(person, ["role"])
    user = users.of_ids(call.db, [person.user_id])[person.user_id]
    if body["role"] == "owner" and person.role != "owner":
        joining.tell_of_owner(call, call.org, user)
    person.role = body["role"]
    call.audit(target=person.user_id, detail={"role": person.role}, changes=changes)
    return views.member(person, user)


def remove(call: OrgCall, person: Membership) -> Reply:
    leaves = call.caller.session is not None and person.user_id == call.caller.user.id
    if not leaves:
        _require_writing(call)
        reach.check_member(call, person.user_id)
    told: Body = {"user_id": person.user_id, "role": person.role, "left": leaves}
    also = departures.end(call.db, person, call.now)
    call.audit(target=told["user_id"], detail={**told, **also})
    call.emit("org.member.removed.v1", told)
    return Reply.no_content()


def _require_writing(call: OrgCall) -> None:
    if not call.caller.rights.has("members:write"):
        raise lacking("members:write", call.caller.role)
