"""Memberships: which user belongs to which organization, and in which role."""

from sqlalchemy import ForeignKey, false, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Owned, Record
from storage.errors import RecordNotFound
from storage.lookups import by_key


class Membership(Owned, Record):
    __tablename__ = "memberships"

    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), primary_key=True, index=True)
    role: Mapped[str]
    # Not in the team Everyone: what the role holds in teams, it holds in none by itself.
    teams_only: Mapped[bool] = mapped_column(default=False, server_default=false())


def create(db: Session, org_id: str, user_id: str, role: str) -> Membership:
    membership = Membership(org_id=org_id, user_id=user_id, role=role)
    db.add(membership)
    db.flush()
    return membership


def find(db: Session, org_id: str, user_id: str) -> Membership | None:
    return by_key(db, Membership, org_id, user_id)


def fetch(db: Session, org_id: str, user_id: str, *, lock: bool = False) -> Membership:
    """The user's membership; `lock` holds its row until the transaction ends."""
    membership = by_key(db, Membership, org_id, user_id, lock=lock)
    if membership is None:
        raise RecordNotFound("member not found")
    return membership


def first_owner(db: Session, org_id: str) -> str | None:
    """The user who has owned the organization for longest; None where it has no owner any more."""
    rows = (
        select(Membership.user_id)
        .where(Membership.org_id == org_id, Membership.role == "owner")
        .order_by(Membership.created_at, Membership.user_id)
        .limit(1)
    )
    return db.execute(rows).scalar_one_or_none()
