"""Members: who belongs to an organization, in which role."""

from typing import Any

from control.access import seats
from control.boundary import AuditedChanges
from control.boundary.authorization import lacking
from handlers import paging
from handlers.access import joining, reach, views
from handlers.calls import OrgCall
from specserver import Conflict, Reply
from storage.access import api_keys, invites, memberships, users
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
        _refuse_last_owner(call, person)
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
    _refuse_last_owner(call, person)
    revoked = api_keys.revoke_of(call.db, call.org.id, person.user_id, call.now)
    ended = invites.revoke_of(call.db, call.org.id, person.user_id, call.now)
    told = {"user_id": person.user_id, "role": person.role, "left": leaves}
    also = {"api_keys_revoked": revoked, "invites_revoked": ended}
    call.audit(target=person.user_id, detail={**told, **also})
    call.emit("org.member.removed.v1", told)
    call.db.delete(person)
    return Reply.no_content()


def _require_writing(call: OrgCall) -> None:
    if not call.caller.rights.has("members:write"):
        raise lacking("members:write", call.caller.role)


def _refuse_last_owner(call: OrgCall, member: Membership) -> None:
    """While this request lasts, nobody else changes the organization: the count stays true."""
    if member.role == "owner" and memberships.count(call.db, call.org.id, "owner") == 1:
        raise Conflict(
            "this is the last owner of the organization: make somebody else an owner first,"
            " or close the organization",
            code="last_owner",
        )
