"""One-time URLs that have not expired: for whom each was signed, and what it is good for."""

from collections.abc import Collection, Iterable
from datetime import datetime

from sqlalchemy import ForeignKey, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Owned, Record


class OneTimeUrl(Owned, Record):
    """`id` is the token's `jti`; `holder` the API key or user session that asked for it."""

    __tablename__ = "one_time_urls"

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    holder: Mapped[str]
    action: Mapped[str]
    expires_at: Mapped[datetime] = mapped_column(index=True)


def unexpired(db: Session, instance_ids: Collection[str], now: datetime) -> list[OneTimeUrl]:
    """Those of these instances that may still be used."""
    rows = db.scalars(select(OneTimeUrl).where(OneTimeUrl.expires_at > now))
    return [url for url in rows if url.instance_id in instance_ids]


def forget(db: Session, ids: Iterable[str]) -> None:
    db.execute(delete(OneTimeUrl).where(OneTimeUrl.id.in_(list(ids))))


def forget_expired(db: Session, now: datetime) -> None:
    db.execute(delete(OneTimeUrl).where(OneTimeUrl.expires_at < now))
