"""User sessions: signed-in people, known by the hash of their token."""

from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, ForeignKey, and_, false, or_, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import pages
from storage.columns import Record
from storage.errors import RecordNotFound
from storage.lookups import by_key, delete_some
from storage.pages import Page

_ADDRESSES_MAX = 1_000
LIVE_MAX: Final = 100
"""Sessions of one user that are open at once."""


class UserSession(Record):
    __tablename__ = "sessions"

    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    token_hash: Mapped[str] = mapped_column(unique=True)
    prefix: Mapped[str]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    last_used_at: Mapped[datetime | None]
    mfa_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None] = mapped_column(index=True)
    user_agent: Mapped[str | None]
    ip: Mapped[str | None]
    # Of one that began by single sign-on: the organization that it is held to, and by what.
    sso_org_id: Mapped[str | None]
    sso_connection_id: Mapped[str | None] = mapped_column(index=True)
    # An owner's, by password or passkey, where single sign-on is enforced for their address.
    is_break_glass: Mapped[bool] = mapped_column(default=False, server_default=false())

    def is_live(self, now: datetime) -> bool:
        return self.revoked_at is None and self.expires_at > now

    def revoke(self, at: datetime) -> None:
        """Revoking twice keeps the first moment."""
        self.revoked_at = self.revoked_at or at


def _live(user_id: str, now: datetime) -> ColumnElement[bool]:
    """What holds for the user's live sessions: `UserSession.is_live`, in SQL."""
    return and_(
        UserSession.user_id == user_id,
        UserSession.revoked_at.is_(None),
        UserSession.expires_at > now,
    )


def by_token_hash(db: Session, token_hash: str) -> UserSession | None:
    """The session of that token, live or not: the caller decides by the database's clock."""
    return db.scalars(select(UserSession).where(UserSession.token_hash == token_hash)).one_or_none()


def addresses(db: Session, user_id: str, now: datetime) -> list[str]:
    """Where the user's live sessions began; those of a provider say nothing of where they are."""
    rows = select(UserSession.ip).where(_live(user_id, now), UserSession.sso_org_id.is_(None))
    return [ip for ip in db.scalars(rows.distinct().limit(_ADDRESSES_MAX)) if ip is not None]


def fetch(
    db: Session,
    user_id: str,
    session_id: str,
    now: datetime,
    *,
    held_to: str | None = None,
    lock: bool = False,
) -> UserSession:
    """A live session of that user; `lock` holds it until the transaction ends.

    With `held_to`, one that began by single sign-on to that organization.
    """
    found = by_key(db, UserSession, session_id, lock=lock)
    if found is None or found.user_id != user_id or not found.is_live(now):
        raise RecordNotFound("session not found")
    if held_to is not None and found.sso_org_id != held_to:
        raise RecordNotFound("session not found")
    return found


def page(
    db: Session,
    user_id: str,
    *,
    now: datetime,
    held_to: str | None = None,
    limit: int,
    after: str | None,
) -> Page[UserSession]:
    """The user's live sessions, newest first; with `held_to`, those held to that organization."""
    rows = select(UserSession).where(_live(user_id, now))
    if held_to is not None:
        rows = rows.where(UserSession.sso_org_id == held_to)
    return pages.keyset(db, rows, UserSession.id, limit=limit, after=after)


def revoke_others(db: Session, session: UserSession, at: datetime) -> int:
    """End every other live session of its user, however many there are; how many that were."""
    return _revoke(db, session.user_id, at, UserSession.id != session.id)


def revoke_all(db: Session, user_id: str, at: datetime) -> int:
    """End every live session of the user; how many that were."""
    return _revoke(db, user_id, at)


def revoke_held_to(db: Session, user_id: str, org_id: str, at: datetime) -> int:
    """End the user's live sessions that are held to this organization; how many that were."""
    return _revoke(db, user_id, at, UserSession.sso_org_id == org_id)


def revoke_of_connection(db: Session, connection_id: str, at: datetime) -> int:
    """End every live session that began by this connection; how many that were."""
    live = (UserSession.revoked_at.is_(None), UserSession.expires_at > at)
    ended = update(UserSession).where(UserSession.sso_connection_id == connection_id, *live)
    return len(db.execute(ended.values(revoked_at=at).returning(UserSession.id)).all())


def _revoke(db: Session, user_id: str, at: datetime, *which: ColumnElement[bool]) -> int:
    live = update(UserSession).where(_live(user_id, at), *which).values(revoked_at=at)
    return len(db.execute(live.returning(UserSession.id)).all())


def revoke_surplus(db: Session, session: UserSession, at: datetime) -> None:
    """End the user's oldest live sessions beyond LIVE_MAX, `session` aside.

    Of those that began as it did: a provider ends no session that is not its own. First those
    without a second factor. Where `session` has not passed it either, none that has ends: the
    password alone must not do that, so that there may be one more.
    """
    surplus = (
        select(UserSession.id)
        .where(_live(session.user_id, at), UserSession.id != session.id)
        .where(UserSession.sso_org_id.is_not_distinct_from(session.sso_org_id))
        .order_by(UserSession.mfa_at.is_(None), UserSession.id.desc())
        .offset(LIVE_MAX - 1)
    )
    ended = update(UserSession).where(UserSession.id.in_(surplus.scalar_subquery()))
    if session.mfa_at is None:
        ended = ended.where(UserSession.mfa_at.is_(None))
    db.execute(ended.values(revoked_at=at).execution_options(synchronize_session=False))


def forget_second_factor(db: Session, user_id: str) -> None:
    """No session of the user has passed it any more."""
    passed = (UserSession.user_id == user_id, UserSession.mfa_at.is_not(None))
    db.execute(update(UserSession).where(*passed).values(mfa_at=None))


def forget_ended(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` that expired or were revoked before that moment; how many went."""
    ended = or_(UserSession.expires_at < before, UserSession.revoked_at < before)
    return delete_some(db, UserSession, ended, limit)
