"""The seats that the plan of an organization has, and who takes them."""

from datetime import datetime
from typing import TypedDict

from sqlalchemy.orm import Session

from control.policy.plans import PLANS
from specserver import PaymentRequired
from storage.access import invites, memberships
from storage.access.organizations import Organization


class Seats(TypedDict):
    """`limit` is None where the plan has any number."""

    limit: int | None
    members: int
    pending_invites: int


def of(db: Session, org: Organization, now: datetime) -> Seats:
    return {
        "limit": PLANS[org.plan].seats_max,
        "members": memberships.count(db, org.id),
        "pending_invites": invites.count_pending(db, org.id, now),
    }


def refuse_full(
    db: Session, org: Organization, now: datetime, *, with_pending: bool = False
) -> None:
    """Where one more member, or one more invite, has no seat."""
    taken = of(db, org, now)
    used = taken["members"] + (taken["pending_invites"] if with_pending else 0)
    if taken["limit"] is not None and used >= taken["limit"]:
        among = " or invited" if with_pending else ""
        raise PaymentRequired(
            f"the {org.plan} plan has {taken['limit']} seats, and as many people are"
            f" members{among}: remove somebody, revoke an invite or change the plan",
            code="seat_limit",
        )
