"""Who of a connection is which user."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, delete
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Owned, Record
from storage.lookups import by_key
from storage.sso.connections import SsoConnection


class SsoIdentity(Owned, Record):
    """`subject` is how the provider names somebody, for ever; addresses and names change."""

    __tablename__ = "sso_identities"
    __table_args__ = (Index(None, "org_id", "user_id"),)

    connection_id: Mapped[str] = mapped_column(
        ForeignKey("sso_connections.id", ondelete="CASCADE"), primary_key=True
    )
    subject: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    last_seen_at: Mapped[datetime]


def find(db: Session, connection: SsoConnection, subject: str) -> SsoIdentity | None:
    return by_key(db, SsoIdentity, connection.id, subject, lock=True)


def add(
    db: Session, connection: SsoConnection, subject: str, user_id: str, at: datetime
) -> SsoIdentity:
    made = SsoIdentity(
        connection_id=connection.id,
        subject=subject,
        org_id=connection.org_id,
        user_id=user_id,
        last_seen_at=at,
    )
    db.add(made)
    db.flush()
    return made


def forget(db: Session, connection: SsoConnection) -> None:
    """All of the connection, which is about to go."""
    db.execute(
        delete(SsoIdentity).where(
            SsoIdentity.org_id == connection.org_id, SsoIdentity.connection_id == connection.id
        )
    )
