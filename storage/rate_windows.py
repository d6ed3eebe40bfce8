"""Rate windows: when each key made its last requests, counted together by every replica."""

from array import array
from datetime import UTC, datetime
from typing import TypeAlias

from sqlalchemy import select, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import EPOCH, Record
from storage.lookups import delete_some

Moments: TypeAlias = "array[int]"
"""Whole milliseconds since 1970, in order."""


class RateWindow(Record):
    """`hits` are the moments as 64-bit integers.

    On PostgreSQL the table is unlogged: what it holds is worth nothing after a minute.
    """

    __tablename__ = "rate_windows"

    key: Mapped[str] = mapped_column(primary_key=True)
    hits: Mapped[bytes]
    last_at: Mapped[datetime] = mapped_column(index=True)


def lock(db: Session, key: str) -> Moments:
    """The requests of that key, oldest first; nobody else counts them until the commit."""
    statement = select(RateWindow.hits).where(RateWindow.key == key).with_for_update()
    stored = db.scalar(statement)
    if stored is None:
        values = {"key": key, "hits": b"", "last_at": EPOCH}
        # SQLite writes its clause alike.
        db.execute(postgresql.insert(RateWindow).values(values).on_conflict_do_nothing())
        stored = db.execute(statement).scalar_one()
    moments = array("q")
    moments.frombytes(bytes(stored))
    return moments


def keep(db: Session, key: str, moments: Moments) -> None:
    """Store the requests of a key that `lock` was called for; there is at least one."""
    values = {
        "hits": moments.tobytes(),
        "last_at": datetime.fromtimestamp(moments[-1] / 1000, UTC),
    }
    held = update(RateWindow).where(RateWindow.key == key).values(values)
    db.execute(held.execution_options(synchronize_session=False))


def forget_idle(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` keys without a request since that moment; how many went."""
    return delete_some(db, RateWindow, RateWindow.last_at < before, limit)
