"""Memberships: which user belongs to which organization, and in which role."""

from collections.abc import Collection
from typing import Final

from sqlalchemy import ForeignKey, false, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import pages
from storage.access.users import User
from storage.columns import Owned, Record
from storage.errors import RecordNotFound
from storage.lookups import by_key
from storage.pages import Page


class Membership(Owned, Record):
    __tablename__ = "memberships"

    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), primary_key=True, index=True)
    role: Mapped[str]
    # Not in the team Everyone: what the role holds in teams, it holds in none by itself.
    teams_only: Mapped[bool] = mapped_column(default=False, server_default=false())


PERSON: Final = "usr_"
PEOPLE: Final = Membership.user_id.startswith(PERSON)
"""Service accounts are members too, and neither listed among people nor counted."""


def create(db: Session, org_id: str, user_id: str, role: str) -> Membership:
    membership = Membership(org_id=org_id, user_id=user_id, role=role)
    db.add(membership)
    db.flush()
    return membership


def find(db: Session, org_id: str, user_id: str) -> Membership | None:
    return by_key(db, Membership, org_id, user_id)


def fetch(db: Session, org_id: str, user_id: str, *, lock: bool = False) -> Membership:
    """That of a member of the organization; `lock` holds it until the commit."""
    found = by_key(db, Membership, org_id, user_id, lock=lock)
    if found is None:
        raise RecordNotFound("member not found")
    return found


def fetch_person(db: Session, org_id: str, user_id: str, *, lock: bool = False) -> Membership:
    """That of a member who is no service account: what it is changed by is its own."""
    if not user_id.startswith(PERSON):
        raise RecordNotFound("member not found")
    return fetch(db, org_id, user_id, lock=lock)


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[Membership]:
    """The organization's, those of the newest users first."""
    rows = select(Membership).where(Membership.org_id == org_id, PEOPLE)
    return pages.keyset(db, rows, Membership.user_id, limit=limit, after=after)


def count(db: Session, org_id: str, role: str | None = None) -> int:
    """People who are members of the organization, of this role or of any."""
    rows = select(func.count()).select_from(Membership).where(Membership.org_id == org_id, PEOPLE)
    if role is not None:
        rows = rows.where(Membership.role == role)
    return db.scalars(rows).one()


def count_by_org(db: Session) -> dict[str, int]:
    """People who are members of each organization."""
    rows = select(Membership.org_id, func.count()).where(PEOPLE).group_by(Membership.org_id)
    return dict(db.execute(rows).tuples().all())


def first_owner(db: Session, org_id: str) -> str | None:
    """The user who has owned the organization for longest; None where it has no owner any more."""
    rows = (
        select(Membership.user_id)
        .where(Membership.org_id == org_id, Membership.role == "owner")
        .order_by(Membership.created_at, Membership.user_id)
        .limit(1)
    )
    return db.execute(rows).scalar_one_or_none()


def addresses(db: Session, org_id: str, roles: Collection[str], limit: int) -> list[str]:
    """The email addresses of people with one of these roles, those of the oldest accounts first."""
    rows = select(User.email).join(Membership, Membership.user_id == User.id)
    rows = rows.where(Membership.org_id == org_id, Membership.role.in_(roles), PEOPLE)
    return list(db.scalars(rows.order_by(User.id).limit(limit)))


def count_without_mfa(db: Session, org_id: str) -> int:
    """People who are members and have neither an authenticator app nor a passkey."""
    rows = select(func.count()).select_from(Membership).join(User, User.id == Membership.user_id)
    without = User.totp_confirmed_at.is_(None), User.passkeys == 0
    rows = rows.where(Membership.org_id == org_id, PEOPLE, *without)
    return db.scalars(rows).one()
