"""Handlers of the tag Approvals: orders that wait for somebody to decide."""

from datetime import timedelta
from typing import Any

from control.ordering import approving
from control.policy import approvals as policy
from control.policy import quotas
from control.policy.violations import refuse
from control.workflows.instances import approvals as telling
from control.workflows.instances import lifecycle
from handlers import paging
from handlers.calls import OrgCall
from handlers.instances import approval_views as views
from handlers.instances.views import instance_event
from specserver import Reply
from storage.access.projects import Project
from storage.instances import approvals
from storage.instances.approvals import Approval

Body = dict[str, Any]


def list_(
    call: OrgCall,
    limit: int,
    status: str,
    mine: bool,
    cursor: str | None = None,
    team_id: str | None = None,
) -> Body:
    found = approvals.page(
        call.db,
        call.org.id,
        now=call.now,
        status=status,
        teams=policy.seen_in(call.caller.rights),
        requester_id=call.caller.user.id,
        mine=mine,
        team_id=team_id,
        limit=limit,
        after=paging.after(call, cursor),
    )
    return paging.page(call, found, lambda record: views.approval(record, call.now))


def get(call: OrgCall, approval: Approval) -> Body:
    return views.approval(approval, call.now)


def approve(call: OrgCall, approval: Approval, body: Body) -> Body:
    approval.check_pending(call.now)
    by = call.requester
    instance = approving.place_approved(by, approval, request_id=call.request_id)
    approval.approve(call.caller.id, call.now, body.get("reason"), instance.id)
    call.audit(target=approval.id, detail={"instance": instance.id, "team_id": approval.team_id})
    call.emit("instance.requested.v1", instance_event(instance), instance)
    call.start(lifecycle.provision, instance)
    return _decided(call, approval)


def deny(call: OrgCall, approval: Approval, body: Body) -> Body:
    approval.deny(call.caller.id, call.now, body["reason"])
    call.audit(target=approval.id, detail={"team_id": approval.team_id})
    return _decided(call, approval)


def request(call: OrgCall, project: Project, body: Body, shown: Body) -> Reply:
    """Have the order wait, which is right in itself; `shown` is its preview. Nothing is made."""
    _check_quota(call)
    approval = _record(call, project, body, shown)
    call.audit(target=approval.id, detail={**body, "approval_required": True})
    call.emit("approval.requested.v1", telling.requested_event(approval))
    telling.tell_deciders(call.requester, call.services, approval)
    location = f"/v1/orgs/{call.org.id}/approvals/{approval.id}"
    return Reply.accepted(views.approval(approval, call.now), location)


def _record(call: OrgCall, project: Project, body: Body, shown: Body) -> Approval:
    values = {
        "team_id": project.team_id,
        "project_id": project.id,
        "requested_by": call.caller.id,
        "requester_id": call.caller.user.id,
        "order": body,
        "reasons": shown["approval"]["reasons"],
        "cost_cents": shown["cost_usd_cents_month"],
        "expires_at": call.now + timedelta(seconds=call.services.settings.approval_ttl_s),
    }
    return approvals.request(call.db, call.org.id, values)


def _check_quota(call: OrgCall) -> None:
    of_org = approvals.count_pending(call.db, call.org.id, call.now)
    requester_id = call.caller.user.id
    own = approvals.count_pending(call.db, call.org.id, call.now, requester_id=requester_id)
    refuse(quotas.check_one_more_approval(of_org, own))


def _decided(call: OrgCall, approval: Approval) -> Body:
    call.emit("approval.decided.v1", telling.decided_event(approval))
    telling.tell_requester(call.db, call.services, approval)
    return views.decision(approval)
