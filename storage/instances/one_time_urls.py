"""One-time URLs that have not expired: for whom each was signed, and what it is good for."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ForeignKey, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Owned, Record
from storage.instances.instances import Instance
from storage.lookups import delete_some


class OneTimeUrl(Owned, Record):
    """`id` is the token's `jti`; `holder` the API key or user session that asked for it."""

    __tablename__ = "one_time_urls"

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    holder: Mapped[str]
    action: Mapped[str]
    expires_at: Mapped[datetime] = mapped_column(index=True)


@dataclass(frozen=True)
class UrlPurpose:
    """What somebody has unexpired URLs for."""

    instance: Instance
    holder: str
    action: str


def asked_for(db: Session, cell_id: str, now: datetime) -> list[UrlPurpose]:
    """Who has URLs for what of the cell's instances, once however many they are."""
    kinds = select(OneTimeUrl.instance_id, OneTimeUrl.holder, OneTimeUrl.action)
    kinds = kinds.where(OneTimeUrl.expires_at > now).distinct()
    found = kinds.subquery()
    rows = select(Instance, found.c.holder, found.c.action)
    rows = rows.join(found, found.c.instance_id == Instance.id).where(Instance.cell_id == cell_id)
    return [UrlPurpose(*row) for row in db.execute(rows)]


def of(db: Session, asked: UrlPurpose, now: datetime) -> list[OneTimeUrl]:
    """All of those that may still be used."""
    rows = select(OneTimeUrl).where(
        OneTimeUrl.instance_id == asked.instance.id,
        OneTimeUrl.holder == asked.holder,
        OneTimeUrl.action == asked.action,
        OneTimeUrl.expires_at > now,
    )
    return list(db.scalars(rows))


def cells_with_unexpired(db: Session, now: datetime) -> list[str]:
    """The cells of instances that have any which may still be used."""
    return list(
        db.scalars(
            select(Instance.cell_id)
            .join(OneTimeUrl, OneTimeUrl.instance_id == Instance.id)
            .where(OneTimeUrl.expires_at > now)
            .distinct()
            .order_by(Instance.cell_id)
        )
    )


def forget(db: Session, ids: Iterable[str]) -> None:
    db.execute(delete(OneTimeUrl).where(OneTimeUrl.id.in_(list(ids))))


def forget_expired(db: Session, now: datetime, limit: int) -> int:
    """Delete at most `limit` that expired before that moment; how many went."""
    return delete_some(db, OneTimeUrl, OneTimeUrl.expires_at < now, limit)
