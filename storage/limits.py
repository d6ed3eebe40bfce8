"""Rate-limit buckets: how much of each allowance is left, shared by every replica."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Record


class Bucket(Record):
    """`full_at` is when the bucket will be full again, which is all a token bucket must know."""

    __tablename__ = "limits"

    key: Mapped[str] = mapped_column(primary_key=True)
    full_at: Mapped[datetime] = mapped_column(index=True)


@dataclass(frozen=True)
class Allowance:
    """What was decided: `remaining` whole requests, and seconds until the next is allowed."""

    allowed: bool
    remaining: int
    retry_after_s: float
    reset_s: float


def take(db: Session, key: str, now: datetime, *, per_s: float, burst: int) -> Allowance:
    """Take one token from the bucket of `key`, which refills at `per_s` up to `burst`.

    Call it in a write transaction: the row is locked until that ends.
    """
    token = timedelta(seconds=1 / per_s)
    bucket = db.get(Bucket, key, with_for_update=True)
    if bucket is None:
        bucket = Bucket(key=key, full_at=now)
        db.add(bucket)
    full_at = max(bucket.full_at, now) + token
    over = full_at - (now + burst * token)
    if over > timedelta(0):
        reset = bucket.full_at - now
        return Allowance(False, 0, over.total_seconds(), reset.total_seconds())
    bucket.full_at = full_at
    db.flush()
    return Allowance(True, int(-over / token), 0.0, (full_at - now).total_seconds())


def forget_full(db: Session, now: datetime) -> int:
    """Delete buckets that are full again: they say nothing a new one would not."""
    full = delete(Bucket).where(Bucket.full_at < now).returning(Bucket.key)
    return len(db.execute(full).all())
