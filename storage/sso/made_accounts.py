"""Accounts that were made for people of an identity provider, whose addresses nobody has shown.

They are counted for a day. What was made stays counted whatever becomes of the connection, of the
membership or of the account: else whoever runs a provider could begin anew again and again.
"""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import tenancy
from storage.columns import Owned, Record
from storage.lookups import delete_some


class SsoMadeAccount(Owned, Record):
    """`place` is the address that they came from, as rates count it."""

    __tablename__ = "sso_made_accounts"
    __table_args__ = (
        Index(None, "org_id", "made_at"),
        Index(None, "place", "made_at"),
        Index(None, "made_at"),
    )

    user_id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    place: Mapped[str]
    made_at: Mapped[datetime]


def note(db: Session, org_id: str, user_id: str, place: str, at: datetime) -> None:
    db.add(SsoMadeAccount(org_id=org_id, user_id=user_id, place=place, made_at=at))
    db.flush()


def of_org(db: Session, org_id: str, since: datetime) -> int:
    rows = select(func.count()).select_from(SsoMadeAccount)
    rows = rows.where(SsoMadeAccount.org_id == org_id, SsoMadeAccount.made_at > since)
    return db.scalars(rows).one()


def of_place(db: Session, place: str, since: datetime) -> int:
    """For people who came from there, to whichever organization."""
    rows = select(func.count()).select_from(SsoMadeAccount)
    rows = rows.where(SsoMadeAccount.place == place, SsoMadeAccount.made_at > since)
    with tenancy.across(db, "an address is no organization's"):
        return db.scalars(rows).one()


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` that were made before that moment; how many went."""
    return delete_some(db, SsoMadeAccount, SsoMadeAccount.made_at < before, limit)
