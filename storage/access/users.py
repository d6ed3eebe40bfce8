"""Users: people, who may belong to several organizations."""

from collections.abc import Collection
from datetime import datetime
from typing import Final

from sqlalchemy import false, select, text
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers
from storage.columns import Record

SERVICE_DOMAIN: Final = "service-accounts.invalid"
"""Of the made-up addresses of service accounts: by RFC 2606 no mail ever gets there."""


class User(Record):
    __tablename__ = "users"

    id: Mapped[str] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    password_hash: Mapped[str | None]
    totp_secret_sealed: Mapped[bytes | None]
    totp_confirmed_at: Mapped[datetime | None]
    totp_last_step: Mapped[int | None]
    # Of the support of the service: may do in an organization what it grants to support.
    is_support: Mapped[bool] = mapped_column(default=False, server_default=false())
    # That mail to `email` reaches them; None: nobody has shown it yet.
    email_verified_at: Mapped[datetime | None]

    # How many they have: asked for on each request, and counted where one comes or goes.
    passkeys: Mapped[int] = mapped_column(default=0, server_default=text("0"))

    @property
    def has_second_factor(self) -> bool:
        """An authenticator app or a passkey: one of them is then asked for."""
        return self.totp_confirmed_at is not None or self.passkeys > 0

    def verify(self, email: str, at: datetime) -> None:
        """Give them this address, or let them keep it: mail to it reaches them."""
        self.email, self.email_verified_at = email, at

    @property
    def is_person(self) -> bool:
        return not self.email.endswith(f"@{SERVICE_DOMAIN}")

    @property
    def shown(self) -> str:
        """As others read of them."""
        return f"{self.name} ({self.email})" if self.is_person else f"service account {self.name}"


def email_shown(email: str) -> str | None:
    """As others see it; a service account has none."""
    return None if email.endswith(f"@{SERVICE_DOMAIN}") else email


def create(db: Session, *, email: str, name: str, password_hash: str | None = None) -> User:
    user = User(
        id=identifiers.new("usr_"), email=email.lower(), name=name, password_hash=password_hash
    )
    db.add(user)
    db.flush()
    return user


def by_email(db: Session, email: str) -> User | None:
    return db.scalars(select(User).where(User.email == email.lower())).one_or_none()


def of_support(db: Session) -> list[User]:
    """All who are of the support of the service, by their addresses."""
    return list(db.scalars(select(User).where(User.is_support).order_by(User.email)))


def locked(db: Session, user_id: str) -> User:
    """As they are now, held until the commit."""
    user = db.get_one(User, user_id)
    db.refresh(user, with_for_update=True)
    return user


def of_ids(db: Session, ids: Collection[str]) -> dict[str, User]:
    """Those of these ids, by their ids."""
    return {user.id: user for user in db.scalars(select(User).where(User.id.in_(ids)))}


def is_anyone(db: Session) -> bool:
    return db.scalar(select(User.id).limit(1)) is not None
