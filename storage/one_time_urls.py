"""One-time URLs that have not expired: for whom each was signed, and what it is good for."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import ForeignKey, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Owned, Record
from storage.instances import Instance


class OneTimeUrl(Owned, Record):
    """`id` is the token's `jti`; `holder` the API key or user session that asked for it."""

    __tablename__ = "one_time_urls"

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    holder: Mapped[str]
    action: Mapped[str]
    expires_at: Mapped[datetime] = mapped_column(index=True)


def unexpired(db: Session, cell_id: str, now: datetime) -> list[tuple[OneTimeUrl, Instance]]:
    """Those of the cell's instances that may still be used, each with its instance."""
    rows = db.execute(
        select(OneTimeUrl, Instance)
        .join(Instance, Instance.id == OneTimeUrl.instance_id)
        .where(OneTimeUrl.expires_at > now, Instance.cell_id == cell_id)
    )
    return [(url, instance) for url, instance in rows]


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


def forget_expired(db: Session, now: datetime) -> None:
    db.execute(delete(OneTimeUrl).where(OneTimeUrl.expires_at < now))
