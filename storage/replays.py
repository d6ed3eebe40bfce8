"""Replays: the answer once given to an Idempotency-Key, kept for its window."""

from datetime import datetime
from typing import Final

from sqlalchemy import delete
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Json, Record, one_of

STATES: Final = ("in_flight", "done")


class Replay(Record):
    __tablename__ = "replays"
    __table_args__ = (one_of("state", STATES),)

    scope: Mapped[str] = mapped_column(primary_key=True)
    operation: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    body_sha256: Mapped[str]
    state: Mapped[str] = mapped_column(default="in_flight")
    status: Mapped[int | None]
    headers: Mapped[dict[str, str] | None] = mapped_column(Json)
    body_sealed: Mapped[bytes | None]
    expires_at: Mapped[datetime] = mapped_column(index=True)


def find(db: Session, scope: str, operation: str, key: str) -> Replay | None:
    """The replay of that key, expired or not: the caller decides by the database's clock."""
    return db.get(Replay, (scope, operation, key))


def forget_expired(db: Session, now: datetime) -> int:
    """Delete replays whose window is over; how many went."""
    expired = delete(Replay).where(Replay.expires_at < now).returning(Replay.key)
    return len(db.execute(expired).all())
