"""People whom an organization's identity provider has pushed, and what it says of them.

Whoever is active is a member: there is no other sign of it, so nobody can be the one and not the
other. What a deactivated person held is kept here until they come back.
"""

import unicodedata
from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ForeignKey, Index, UniqueConstraint, and_, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.access.memberships import Membership
from storage.columns import DatabaseClock, Json, Owned, Record, Timestamp
from storage.lookups import by_key


def folded(name: str) -> str:
    """What user names and names of groups are compared by: alike whatever their case or form."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


class ScimUser(Owned, Record):
    __tablename__ = "scim_users"
    __table_args__ = (
        UniqueConstraint("org_id", "user_name_key"),
        Index(None, "org_id", "external_id"),
    )

    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), primary_key=True, index=True)
    user_name: Mapped[str]
    user_name_key: Mapped[str]
    external_id: Mapped[str | None]
    # Name, display name and addresses, as the provider says them.
    attributes: Mapped[dict[str, Any]] = mapped_column(Json)
    # The account was made for them, and is not one that they had before.
    made_account: Mapped[bool]
    # What they held when they were deactivated; None of members, and of whom nothing was kept.
    held: Mapped[dict[str, Any] | None] = mapped_column(Json)
    version: Mapped[int] = mapped_column(default=1)
    updated_at: Mapped[datetime] = mapped_column(Timestamp(), default=DatabaseClock())

    def rename(self, user_name: str) -> None:
        self.user_name, self.user_name_key = user_name, folded(user_name)

    def touch(self, at: datetime) -> None:
        self.version += 1
        self.updated_at = at


JOINED: Final = and_(Membership.org_id == ScimUser.org_id, Membership.user_id == ScimUser.user_id)
"""The membership of whoever is active."""


def create(
    db: Session, org_id: str, user_id: str, user_name: str, *, made_account: bool
) -> ScimUser:
    made = ScimUser(org_id=org_id, user_id=user_id, made_account=made_account, attributes={})
    made.rename(user_name)
    db.add(made)
    return made


def find(db: Session, org_id: str, user_id: str, *, lock: bool = False) -> ScimUser | None:
    return by_key(db, ScimUser, org_id, user_id, lock=lock)


def by_user_name(db: Session, org_id: str, user_name: str) -> ScimUser | None:
    rows = select(ScimUser).where(ScimUser.org_id == org_id)
    return db.scalars(rows.where(ScimUser.user_name_key == folded(user_name))).one_or_none()


def names(db: Session, org_id: str, user_ids: Collection[str]) -> dict[str, str]:
    """The user names of these people, by their ids; of those alone who were pushed."""
    rows = select(ScimUser.user_id, ScimUser.user_name).where(ScimUser.org_id == org_id)
    return dict(db.execute(rows.where(ScimUser.user_id.in_(user_ids))).tuples().all())
