"""Device logins: a program without a browser waits for somebody to let it in from another one.

As RFC 8628 has it. Both codes are known by their hashes. The program shows the short one, which
whoever is signed in types into a page; with the long one it fetches its session, once.
"""

from datetime import datetime
from typing import Final

from sqlalchemy import ForeignKey, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Record, one_of
from storage.errors import RecordNotFound
from storage.lookups import delete_some

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
    # When the program last asked whether it was let in.
    asked_at: Mapped[datetime | None]
    user_agent: Mapped[str | None]
    ip: Mapped[str]

    def decide(self, session_id: str, *, is_approved: bool) -> None:
        self.session_id, self.decision = session_id, "approved" if is_approved else "denied"


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


def by_device_code(db: Session, device_code_hash: str) -> DeviceLogin | None:
    """Of whatever state, held until the commit."""
    rows = select(DeviceLogin).where(DeviceLogin.device_code_hash == device_code_hash)
    return db.scalars(rows.with_for_update()).one_or_none()


def count_waiting(db: Session, ip: str, now: datetime) -> int:
    """Those from this address that nobody has decided yet."""
    rows = select(func.count()).select_from(DeviceLogin).where(DeviceLogin.ip == ip)
    rows = rows.where(DeviceLogin.decision.is_(None), DeviceLogin.expires_at > now)
    return db.scalars(rows).one()


def forget_expired(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` that expired before that moment; how many went."""
    return delete_some(db, DeviceLogin, DeviceLogin.expires_at < before, limit)
