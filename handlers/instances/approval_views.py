"""Approvals, and what an order needs one for, as the JSON that openapi.yaml describes."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from control.policy.approvals import Reason
from handlers.instants import timestamp, timestamp_or_none
from storage.access.team_members import WithRoles
from storage.instances.approvals import Approval

Json = dict[str, Any]


def approval(record: Approval, now: datetime) -> Json:
    return {
        "id": record.id,
        "org_id": record.org_id,
        "team_id": record.team_id,
        "project_id": record.project_id,
        "status": record.status_at(now),
        "order": record.order,
        "cost_usd_cents_month": record.cost_cents,
        "reasons": record.reasons,
        "requested_by": record.requested_by,
        "requester_id": record.requester_id,
        "created_at": timestamp(record.created_at),
        "expires_at": timestamp(record.expires_at),
        "decided_by": record.decided_by,
        "decided_at": timestamp_or_none(record.decided_at),
        "decision_reason": record.decision_reason,
        "instance_id": record.instance_id,
    }


def decision(record: Approval) -> Json:
    """Of one that is approved or denied."""
    return {
        "approval_id": record.id,
        "status": record.status,
        "reason": record.decision_reason,
        "decided_by": record.decided_by,
        "decided_at": timestamp_or_none(record.decided_at),
        "instance_id": record.instance_id,
    }


def needed(reasons: Iterable[Reason], deciders: Iterable[WithRoles]) -> Json:
    """Why an order needs approval, and who can give it."""
    return {
        "reasons": list(reasons),
        "deciders": [{"user_id": each.user_id, "name": each.name} for each in deciders],
    }
