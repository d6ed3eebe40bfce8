"""Support grants: what the support of the service is let do, for a time."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from control.policy import permissions, quotas
from control.policy.rights import Rights
from control.policy.violations import refuse
from handlers import instants, paging
from handlers.access import reach
from handlers.calls import OrgCall
from handlers.roles import views
from specserver import Reply
from storage.instances import instances
from storage.roles import support_grants
from storage.roles.support_grants import SupportGrant

Body = dict[str, Any]

USUAL: Final = timedelta(hours=24)
SHORTEST: Final = timedelta(hours=1)
LONGEST: Final = timedelta(days=7)


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    found = support_grants.page(call.db, call.org.id, limit=limit, after=after)
    return paging.page(call, found, partial(views.support_grant, now=call.now))


def create(call: OrgCall, body: Body) -> Reply:
    expires_at = _expiry(call, body.get("expires_at"))
    _check_reach(call, body)
    active = support_grants.count_active(call.db, call.org.id, call.now)
    refuse(quotas.check_one_more_support_grant(active))
    values: Body = {name: body.get(name) for name in ("permissions", "instance_ids", "reason")}
    by = call.caller.id
    grant = support_grants.create(
        call.db, call.org.id, **values, created_by=by, expires_at=expires_at
    )
    told = {"permissions": grant.permissions, "instance_ids": grant.instance_ids}
    until = instants.timestamp(grant.expires_at)
    call.audit(target=grant.id, detail={**told, "expires_at": until})
    return Reply.created(views.support_grant(grant, call.now))


def revoke(call: OrgCall, support_grant: SupportGrant) -> Reply:
    support_grant.revoke(call.now)
    call.audit(target=support_grant.id)
    return Reply.no_content()


def _expiry(call: OrgCall, text: str | None) -> datetime:
    if text is None:
        return call.now + USUAL
    expires_at = instants.read(text, pointer="/expires_at")
    if not SHORTEST <= expires_at - call.now <= LONGEST:
        message = "must be an hour to 7 days from now"
        raise instants.refused(message, keyword="range", pointer="/expires_at")
    return expires_at


def _check_reach(call: OrgCall, body: Body) -> None:
    """Nobody gives support what they do not have themselves, for each of the instances."""
    asked = frozenset(body["permissions"])
    if "instance_ids" not in body:
        reach.check_given(call, Rights(asked), "support would have")
        return
    for instance_id in body["instance_ids"]:
        instance = instances.fetch(call.db, call.org.id, instance_id)
        held = call.caller.rights.held_at(instance.place)
        reach.refuse((asked & permissions.TEAM) - held, f"support would have for {instance_id}")
