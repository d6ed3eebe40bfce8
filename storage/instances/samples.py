"""Samples: what an instance used in an hour, as its cell measured it."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Owned, Record


class Sample(Owned, Record):
    """One row per instance and hour: peaks of sizes and connections, sums of seconds.

    `seen_at` and `cpu_s_seen` are the last reading, from which the next one's share is counted.
    """

    __tablename__ = "samples"

    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    hour: Mapped[datetime] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), index=True)
    storage_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    connections_max: Mapped[int] = mapped_column(default=0)
    memory_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    cpu_s: Mapped[float] = mapped_column(default=0.0)
    running_s: Mapped[float] = mapped_column(default=0.0)
    seen_at: Mapped[datetime]
    cpu_s_seen: Mapped[float] = mapped_column(default=0.0)


def of_instance(
    db: Session, org_id: str, instance_id: str, *, since: datetime, until: datetime
) -> list[Sample]:
    """The instance's hours within [since, until), oldest first."""
    rows = select(Sample).where(
        Sample.org_id == org_id,
        Sample.instance_id == instance_id,
        Sample.hour >= since,
        Sample.hour < until,
    )
    return list(db.scalars(rows.order_by(Sample.hour)))


def newest(db: Session, org_id: str, instance_id: str) -> Sample | None:
    """The instance's last hour that was measured."""
    rows = select(Sample).where(Sample.org_id == org_id, Sample.instance_id == instance_id)
    return db.scalars(rows.order_by(Sample.hour.desc()).limit(1)).one_or_none()
