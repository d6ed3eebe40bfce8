"""Referrals: both sides are credited once the referred organization has paid its first invoice."""

from sqlalchemy.orm import Session

from control.billing import granting
from control.policy import credits as policy
from storage.access import organizations
from storage.billing import referrals
from storage.database import now


def invoice_paid(db: Session, org_id: str, paid_cents: int, currency: str) -> None:
    """To be called in the transaction in which an invoice becomes paid, with what was paid of it.

    What credits have paid for is none of it. The first time that anything is paid decides, once:
    where both sides are one by then, or the referring one is closed, the referral is refused.
    """
    if paid_cents <= 0:
        return
    held = referrals.hold_pending(db, org_id)
    if held is None:
        return
    referring = organizations.fetch(db, held.org_id)
    if referring.status == "closed" or referrals.are_one(db, held.org_id, org_id):
        held.end("refused", now(db))
        return
    cents = policy.referral_reward(paid_cents)
    held.end("credited", now(db), cents)
    for side, credited, reason in (
        ("referring", held.org_id, "an organization that you referred has paid its first invoice"),
        ("referred", org_id, "you were referred, and have paid your first invoice"),
    ):
        granting.grant(
            db,
            credited,
            "referral",
            cents,
            currency,
            reason=reason,
            source=f"{held.id}:{side}",
            months=policy.REFERRAL_MONTHS,
        )
