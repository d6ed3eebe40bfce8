"""Replays: the answer once given to an Idempotency-Key, kept for its window."""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import Index, and_, func, select, text
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Json, Record, one_of
from storage.lookups import by_key, delete_some
from storage.prepared import Insertion

STATES: Final = ("in_flight", "done")


_IS_LARGE: Final = text("large_bytes IS NOT NULL")


class Replay(Record):
    """`large_bytes`: the size of what is kept, where it counts against what a scope may keep.

    `body_sealed` is NULL where that was used up: the request is known, its answer is not.
    """

    __tablename__ = "replays"
    __table_args__ = (
        one_of("state", STATES),
        Index(
            "ix_replays_large",
            "scope",
            "large_bytes",
            postgresql_where=_IS_LARGE,
            sqlite_where=_IS_LARGE,
        ),
    )

    scope: Mapped[str] = mapped_column(primary_key=True)
    operation: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    body_sha256: Mapped[str]
    state: Mapped[str] = mapped_column(default="in_flight")
    status: Mapped[int | None]
    headers: Mapped[dict[str, str] | None] = mapped_column(Json)
    body_sealed: Mapped[bytes | None]
    large_bytes: Mapped[int | None]
    expires_at: Mapped[datetime] = mapped_column(index=True)


def find(db: Session, scope: str, operation: str, key: str) -> Replay | None:
    """The replay of that key, expired or not: the caller decides by the database's clock."""
    return by_key(db, Replay, scope, operation, key)


_KEPT: Final = Insertion(Replay)


def keep(db: Session, **values: Any) -> None:
    """Keep an answer; the columns of a Replay."""
    _KEPT.write(db, **values)


def large_bytes(db: Session, scope: str) -> int:
    """How much large answers of the scope take together; its few rows are all in one index."""
    kept = select(func.sum(Replay.large_bytes))
    return int(db.scalar(kept.where(Replay.scope == scope, Replay.large_bytes.is_not(None))) or 0)


def forget_surplus(db: Session, kept_max: int, limit: int) -> int:
    """Delete at most `limit` of what scopes keep beyond their latest `kept_max`; how many went."""
    crowded = select(Replay.scope).group_by(Replay.scope).having(func.count() > kept_max)
    gone = 0
    for scope in db.scalars(crowded).all():
        of_scope = Replay.scope == scope
        newest_first = select(Replay.expires_at).where(of_scope).order_by(Replay.expires_at.desc())
        last = newest_first.offset(kept_max).limit(1).scalar_subquery()
        gone += delete_some(db, Replay, and_(of_scope, Replay.expires_at <= last), limit - gone)
        if gone >= limit:
            break
    return gone


def forget_expired(db: Session, now: datetime, limit: int) -> int:
    """Delete at most `limit` replays whose window is over; how many went."""
    return delete_some(db, Replay, Replay.expires_at < now, limit)
