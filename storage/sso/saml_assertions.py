"""SAML assertions that have been used: each lets somebody in once."""

import hashlib
from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Owned, Record
from storage.lookups import by_key, delete_some
from storage.sso.connections import SsoConnection


class SamlAssertion(Owned, Record):
    """Kept until nobody would accept the assertion any more."""

    __tablename__ = "saml_assertions"

    connection_id: Mapped[str] = mapped_column(
        ForeignKey("sso_connections.id", ondelete="CASCADE"), primary_key=True
    )
    assertion_hash: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    expires_at: Mapped[datetime] = mapped_column(index=True)


def use(db: Session, connection: SsoConnection, assertion_id: str, expires_at: datetime) -> bool:
    """Whether nobody has used it before; the transaction holds the connection."""
    # Providers choose their ids, of any length.
    hashed = hashlib.sha256(assertion_id.encode()).hexdigest()
    if by_key(db, SamlAssertion, connection.id, hashed) is not None:
        return False
    db.add(
        SamlAssertion(
            connection_id=connection.id,
            assertion_hash=hashed,
            org_id=connection.org_id,
            expires_at=expires_at,
        )
    )
    db.flush()
    return True


def forget_expired(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` that nobody would accept any more; how many went."""
    return delete_some(db, SamlAssertion, SamlAssertion.expires_at < before, limit)
