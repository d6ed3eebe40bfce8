"""Device logins: a program without a browser waits for somebody to let it in from another one.

As RFC 8628 has it. Both codes are known by their hashes. The program shows the short one, which
whoever is signed in types into a page; with the long one it fetches its session, once.
"""

from datetime import datetime
from typing import Final

from sqlalchemy import ForeignKey, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.access.sessions import UserSession
from storage.columns import Record, one_of
from storage.errors import RecordNotFound
from storage.lookups import by_key, delete_some

DECISIONS: Final = ("approved", "denied")


class DeviceLogin(Record):
    """`session_id` is the session that decided: what is let in has its rights and its limits."""

    __tablename__ = "device_logins"
    __table_args__ = (one_of("decision", DECISIONS),)

    id: Mapped[str] = mapped_column(primary_key=True)
    device_code_hash: Mapped[str] = mapped_column(unique=True)
    user_code_hash: Mapped[str] = mapped_column(unique=True)
    session_id: Mapped[str | None] = mapped_column(ForeignKey("sessions.id"), index=True)
    decision: Mapped[str | None]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    # Of the program, for whoever decides.
    user_agent: Mapped[str | None]
    ip: Mapped[str]

    def decide(self, session: UserSession, decision: str) -> None:
        self.session_id, self.decision = session.id, decision


def create(db: Session, made: DeviceLogin) -> DeviceLogin:
    db.add(made)
    db.flush()
    return made


def waiting(db: Session, user_code_hash: str, now: datetime) -> DeviceLogin:
    """The one with that short code, held until the commit, if nobody has decided it yet."""
    rows = select(DeviceLogin).where(DeviceLogin.user_code_hash == user_code_hash)
    rows = rows.where(DeviceLogin.decision.is_(None), DeviceLogin.expires_at > now)
    found = db.scalars(rows.with_for_update()).one_or_none()
    if found is None:
        raise RecordNotFound("no program waits with this code: it is wrong, used or expired")
    return found


def by_device_code(db: Session, device_code_hash: str) -> DeviceLogin:
    """Of whatever state, held until the commit; it is gone once its session was fetched."""
    rows = select(DeviceLogin).where(DeviceLogin.device_code_hash == device_code_hash)
    found = db.scalars(rows.with_for_update()).one_or_none()
    if found is None:
        raise RecordNotFound("there is no such device login, or its session was fetched already")
    return found


def approver(db: Session, login: DeviceLogin, now: datetime) -> UserSession | None:
    """The session that let it in, if it is still open."""
    session = by_key(db, UserSession, login.session_id) if login.session_id else None
    return session if session is not None and session.is_live(now) else None


def forget_expired(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` that expired before that moment; how many went."""
    return delete_some(db, DeviceLogin, DeviceLogin.expires_at < before, limit)
