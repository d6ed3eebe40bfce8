"""Referrals: an organization's code, and the organizations that were created with it."""

import secrets
from datetime import datetime
from typing import Final

from sqlalchemy import ForeignKey, Index, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages, tenancy
from storage.access.enterprises import EnterpriseOrg
from storage.access.memberships import Membership
from storage.access.organizations import Organization
from storage.columns import Owned, Record, one_of
from storage.lookups import by_key
from storage.pages import Page

STATUSES: Final = ("pending", "credited", "refused")
CODE_LENGTH: Final = 10
_LETTERS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Of Crockford's base 32: without those that are read as others."""


class ReferralCode(Owned, Record):
    """An organization has one at most. It is passed on, and no secret; but it is not guessed."""

    __tablename__ = "referral_codes"

    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    code: Mapped[str] = mapped_column(unique=True)
    created_by: Mapped[str]


class Referral(Owned, Record):
    """That an organization was created with the code of `org_id`, which sees nothing else of it."""

    __tablename__ = "referrals"
    __table_args__ = (one_of("status", STATUSES), Index(None, "org_id", "id"))

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    referred_org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), unique=True)
    status: Mapped[str] = mapped_column(default="pending")
    credited_cents: Mapped[int] = mapped_column(default=0)
    ended_at: Mapped[datetime | None]

    def end(self, status: str, at: datetime, cents: int = 0) -> None:
        self.status, self.ended_at, self.credited_cents = status, at, cents


def code_of(db: Session, org_id: str) -> ReferralCode | None:
    return by_key(db, ReferralCode, org_id)


def create_code(db: Session, org_id: str, by: str) -> ReferralCode:
    """The database refuses a second one of the organization."""
    code = "".join(secrets.choice(_LETTERS) for _ in range(CODE_LENGTH))
    made = ReferralCode(org_id=org_id, code=code, created_by=by)
    db.add(made)
    db.flush()
    return made


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[Referral]:
    """By the organization's code, newest first."""
    rows = select(Referral).where(Referral.org_id == org_id)
    return pages.keyset(db, rows, Referral.id, limit=limit, after=after)


def referring(db: Session, code: str) -> str | None:
    """The id of the open organization that has the code."""
    rows = select(ReferralCode.org_id).join(Organization, Organization.id == ReferralCode.org_id)
    rows = rows.where(ReferralCode.code == code, Organization.status == "open")
    with tenancy.across(db, "a code is of another organization than the one that is made with it"):
        return db.scalar(rows)


def is_member(db: Session, org_id: str, user_id: str) -> bool:
    with tenancy.across(db, "nobody refers themselves"):
        return by_key(db, Membership, org_id, user_id) is not None


def create(db: Session, org_id: str, referred_org_id: str) -> None:
    made = Referral(id=identifiers.new("ref_"), org_id=org_id, referred_org_id=referred_org_id)
    with tenancy.across(db, "a referral is of the organization with the code"):
        db.add(made)
        db.flush()


def hold_pending(db: Session, referred_org_id: str) -> Referral | None:
    """For workers: the referral of that organization, held until the commit, if it is pending."""
    rows = select(Referral).where(Referral.referred_org_id == referred_org_id)
    held = rows.with_for_update().execution_options(populate_existing=True)
    found = db.scalars(held).one_or_none()
    return found if found is not None and found.status == "pending" else None


def are_one(db: Session, org_id: str, other_id: str) -> bool:
    """For workers: whether an owner of one is one of the other, or both are in one enterprise."""
    owners = select(Membership.user_id).where(Membership.role == "owner")
    of_both = owners.where(
        Membership.org_id == org_id,
        Membership.user_id.in_(owners.where(Membership.org_id == other_id)),
    )
    if db.scalars(of_both.limit(1)).first() is not None:
        return True
    heads = [_head(db, each) for each in (org_id, other_id)]
    return heads[0] is not None and heads[0] == heads[1]


def _head(db: Session, org_id: str) -> str | None:
    """The parent of the organization's enterprise."""
    found = by_key(db, EnterpriseOrg, org_id)
    return None if found is None else found.parent_id or found.org_id
