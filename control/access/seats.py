"""The seats of an organization's plan, and who takes them."""

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from control.policy.plans import PLANS
from specserver import PaymentRequired
from storage.access import invites, memberships
from storage.access.organizations import Organization


def refuse_full(
    db: Session, org: Organization, now: datetime, *, with_pending: bool = False
) -> None:
    """Where one more member, or one more invite, has no seat. The organization must be locked."""
    seats = taken(db, org, now)
    used = seats["members"] + (seats["pending_invites"] if with_pending else 0)
    if seats["limit"] is not None and used >= seats["limit"]:
        among = " or invited" if with_pending else ""
        raise PaymentRequired(
            f"the {org.plan} plan has {seats['limit']} seats, and as many people are"
            f" members{among}: remove somebody, revoke an invite or change the plan",
            code="seat_limit",
        )


def taken(db: Session, org: Organization, now: datetime) -> dict[str, Any]:
    """How many the plan has, and who takes them."""
    return {
        "limit": PLANS[org.plan].seats_max,
        "members": memberships.count(db, org.id),
        "pending_invites": invites.count_pending(db, org.id, now),
    }
