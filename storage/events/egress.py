"""What connections to instances sent out, reported every ten seconds: for SIEM deliveries alone.

Reports are numbered as events are. They are kept until they were sent, and a day at most.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, ForeignKey, Index, delete, func, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Json, Owned, Record
from storage.lookups import delete_some

KIND: Final = "usage.egress.v1"


class EgressReport(Owned, Record):
    __tablename__ = "egress_reports"
    __table_args__ = (Index(None, "created_at"),)

    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    id: Mapped[str]
    time: Mapped[datetime]
    data: Mapped[dict[str, Any]] = mapped_column(Json)


class EgressCount(Owned, Record):
    """How many reports an organization has had."""

    __tablename__ = "egress_counts"

    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    last: Mapped[int] = mapped_column(BigInteger)


def append(
    db: Session, org_id: str, reports: Sequence[tuple[str, datetime, Mapping[str, Any]]]
) -> None:
    """Of (id, time, data); numbered under a lock that lasts until the commit."""
    if not reports:
        return
    last = pass_over(db, org_id, len(reports))
    db.add_all(
        EgressReport(org_id=org_id, seq=seq, id=id_, time=time, data=dict(data))
        for seq, (id_, time, data) in enumerate(reports, last - len(reports) + 1)
    )


def pass_over(db: Session, org_id: str, count: int) -> int:
    """Give so many numbers, the last of which it is; whose reports are not there, is a gap."""
    # SQLite writes its clause alike.
    counting = postgresql.insert(EgressCount).values(org_id=org_id, last=count)
    counted = counting.on_conflict_do_update(
        index_elements=[EgressCount.org_id],
        set_={"last": EgressCount.last + counting.excluded.last},
    )
    return int(db.execute(counted.returning(EgressCount.last)).scalar_one())


def after(db: Session, org_id: str, seq: int, limit: int) -> list[EgressReport]:
    """Those that follow the number, in their order."""
    rows = select(EgressReport).where(EgressReport.org_id == org_id, EgressReport.seq > seq)
    return list(db.scalars(rows.order_by(EgressReport.seq).limit(limit)))


def waiting(db: Session, org_id: str) -> int:
    """How many of the organization's there are."""
    rows = select(func.count()).select_from(EgressReport)
    return db.scalars(rows.where(EgressReport.org_id == org_id)).one()


def last(db: Session, org_id: str) -> int:
    rows = select(EgressCount.last).where(EgressCount.org_id == org_id)
    return db.scalars(rows).one_or_none() or 0


def forget_sent(db: Session, org_id: str, seq: int) -> None:
    """Those of the organization up to the number."""
    gone = EgressReport.org_id == org_id, EgressReport.seq <= seq
    db.execute(delete(EgressReport).where(*gone))


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those written before that moment; how many went."""
    return delete_some(
        db, EgressReport, EgressReport.created_at < before, limit, EgressReport.created_at
    )
