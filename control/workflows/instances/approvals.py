"""Approvals: who is told of them, and the end of those that nobody decided."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy.orm import Session

from control import events
from control.mail import letters
from control.ordering import approving
from control.ordering.requester import Requester
from control.policy.prices import amount
from control.services import Services
from control.work import Operation, Schedule, workflow
from control.workflows.access import mail
from storage.access import organizations, teams, users
from storage.database import now
from storage.events import audit
from storage.instances import approvals
from storage.instances.approvals import Approval

_AT_ONCE: Final = 500
"""That one turn marks; the rest at the next. They have expired nevertheless."""
_THEN: Final = {
    "approved": "The instance is being created.",
    "denied": "Nothing was created.",
    "expired": "Nobody decided in time, and nothing was created. You can order again.",
}


def requested_event(approval: Approval) -> dict[str, Any]:
    return {
        **_event(approval),
        "engine": approval.order["engine"],
        "size": approval.order["size"],
        "cost_usd_cents_month": approval.cost_cents,
    }


def decided_event(approval: Approval) -> dict[str, Any]:
    return {
        **_event(approval),
        "status": approval.status,
        "decided_by": approval.decided_by,
        "instance_id": approval.instance_id,
    }


def _event(approval: Approval) -> dict[str, Any]:
    return {
        "approval_id": approval.id,
        "team_id": approval.team_id,
        "project_id": approval.project_id,
        "requested_by": approval.requested_by,
    }


def tell_deciders(by: Requester, services: Services, approval: Approval) -> None:
    """A letter to each who can decide, up to a number, once this transaction is committed."""
    team = teams.fetch(by.db, approval.org_id, approval.team_id)
    requester = users.of_ids(by.db, [approval.requester_id])[approval.requester_id]
    for decider in approving.deciders(by, team):
        letter = letters.approval_request(
            to=decider.email,
            by=requester.shown,
            org=by.org.name,
            team=team.name,
            order=_described(approval.order),
            cost=amount(approval.cost_cents, by.prices.currency),
            reasons=[reason["message"] for reason in approval.reasons],
            approval_id=approval.id,
            until=f"{approval.expires_at:%Y-%m-%d %H:%M} UTC",
            base_url=services.settings.base_url,
        )
        mail.post_of_approval(by.db, services.sealer, letter, approval, while_pending=True)


def tell_requester(db: Session, services: Services, approval: Approval) -> None:
    """A letter to whoever asked, of what was decided."""
    org = organizations.fetch(db, approval.org_id)
    requester = users.of_ids(db, [approval.requester_id])[approval.requester_id]
    if not requester.is_person:
        return
    letter = letters.approval_decided(
        to=requester.email,
        org=org.name,
        order=_described(approval.order),
        approval_id=approval.id,
        status=approval.status,
        reason=approval.decision_reason,
        then=_THEN[approval.status],
    )
    mail.post_of_approval(db, services.sealer, letter, approval, while_pending=False)


def _described(order: Mapping[str, Any]) -> str:
    name = f", named {order['name']}" if "name" in order else ""
    return f"{order['engine']}, size {order['size']}{name}"


@workflow("approvals.expire", deadline_s=60)
def expire(op: Operation) -> None:
    """Mark and tell of those that nobody decided in time; each once, however often this runs."""
    with op.database.read() as db:
        found = approvals.expired(db, now(db), _AT_ONCE)
    for org_id, approval_id in found:
        with op.database.write() as db:
            approval = approvals.fetch(db, org_id, approval_id, lock=True)
            if approval.expire(now(db)):
                _tell_of_expiry(db, op.services, approval)


def _tell_of_expiry(db: Session, services: Services, approval: Approval) -> None:
    audit.append(db, approval.org_id, "approval.expire", actor_kind="system", target=approval.id)
    events.publish(db, approval.org_id, "approval.decided.v1", decided_event(approval))
    tell_requester(db, services, approval)


SCHEDULE: Final = Schedule("approvals", expire, every_s=60)
