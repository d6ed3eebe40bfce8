"""Sign-ins that have begun, and wait for the provider's answer.

Whoever begins one is a stranger, so how many wait is bounded: a connection has so many, and one
address so many of these. Where all are taken, the oldest of the address with the most goes, so
that a crowd pushes out its own.
"""

from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, ForeignKey, Index, delete, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import tenancy
from storage.columns import Owned, Record
from storage.lookups import by_key, delete_some

TTL_S: Final = 600
PER_CONNECTION_MAX: Final = 1_000
PER_PLACE_MAX: Final = 30


class SsoSignIn(Owned, Record):
    """Known by the hash of its `state` (of SAML: its RelayState).

    `browser_hash` is that of the token that the browser which began it keeps. `sealed` is what
    completing it needs and nobody else may read: of OpenID Connect nonce and code verifier, of
    SAML the id of the request.
    """

    __tablename__ = "sso_sign_ins"
    __table_args__ = (Index(None, "connection_id", "place", "created_at"),)

    state_hash: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    connection_id: Mapped[str] = mapped_column(ForeignKey("sso_connections.id", ondelete="CASCADE"))
    browser_hash: Mapped[str]
    sealed: Mapped[bytes]
    place: Mapped[str]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    used_at: Mapped[datetime | None]


def begin(db: Session, made: SsoSignIn, now: datetime) -> None:
    """Of a connection that the transaction has entered, and holds."""
    _forget(db, made.connection_id, SsoSignIn.expires_at <= now)
    waiting = _waiting(db, made.connection_id)
    if waiting.get(made.place, 0) >= PER_PLACE_MAX:
        _forget_oldest(db, made.connection_id, made.place)
    elif sum(waiting.values()) >= PER_CONNECTION_MAX:
        _forget_oldest(db, made.connection_id, max(waiting, key=lambda one: waiting[one]))
    db.add(made)
    db.flush()


def take(db: Session, state_hash: str, browser_hash: str, now: datetime) -> SsoSignIn | None:
    """The one that this browser began, which is used by it; the request goes on in its org.

    None where there is none, or it is another browser's, over, or used. What another browser asks
    for stays, so that nobody ends a sign-in that is not theirs.
    """
    with tenancy.across(db, "whoever signs in is nobody yet, and has the state alone"):
        found = by_key(db, SsoSignIn, state_hash, lock=True)
    if found is None or found.browser_hash != browser_hash:
        return None
    if found.used_at is not None or found.expires_at <= now:
        return None
    tenancy.restrict(db, found.org_id)
    found.used_at = now
    db.flush()
    return found


def forget_expired(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` that were over before that moment; how many went."""
    return delete_some(db, SsoSignIn, SsoSignIn.expires_at < before, limit)


def _waiting(db: Session, connection_id: str) -> dict[str, int]:
    """How many there are by where they began."""
    rows = select(SsoSignIn.place, func.count()).where(SsoSignIn.connection_id == connection_id)
    return dict(db.execute(rows.group_by(SsoSignIn.place)).tuples().all())


def _forget_oldest(db: Session, connection_id: str, place: str) -> None:
    oldest = (
        select(SsoSignIn.state_hash)
        .where(SsoSignIn.connection_id == connection_id, SsoSignIn.place == place)
        .order_by(SsoSignIn.created_at, SsoSignIn.state_hash)
        .limit(1)
    )
    _forget(db, connection_id, SsoSignIn.state_hash.in_(oldest.scalar_subquery()))


def _forget(db: Session, connection_id: str, which: ColumnElement[bool]) -> None:
    gone = delete(SsoSignIn).where(SsoSignIn.connection_id == connection_id, which)
    db.execute(gone.execution_options(synchronize_session=False))
