"""SIEM deliveries: where the audit log and the events of an organization are sent, and how far."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, ForeignKey, Index, func, or_, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import pages
from storage.columns import Json, Owned, Record, one_of
from storage.errors import RecordNotFound
from storage.events import audit_chain, delivery_lanes, egress, events
from storage.events.audit import AuditEntry
from storage.events.audit_chain import AuditHead
from storage.events.delivery_lanes import DeliveryLane
from storage.events.egress import EgressCount
from storage.events.events import Event, EventCount
from storage.instances.instances import HOSTED, Instance
from storage.lookups import by_key
from storage.pages import Page

FORMATS: Final = ("envelope", "ocsf")
KINDS: Final = ("webhook", "s3")
LANES: Final = "siem"
"""The kind of the lanes of deliveries to SIEMs."""


@dataclass(frozen=True)
class StreamPositions:
    """How far each of the three streams was sent: the number of its last entry."""

    audit: int
    events: int
    egress: int


class SiemDelivery(Owned, Record):
    """`target` is what may be shown of it, and `sealed` its secrets.

    The positions move only when the target has confirmed a batch. `batch_to` are those after a
    batch that was begun: it is sent again with the same entries until it is confirmed.
    """

    __tablename__ = "siem_deliveries"
    __table_args__ = (
        one_of("format", FORMATS),
        one_of("kind", KINDS),
        Index(None, "org_id", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    format: Mapped[str]
    kind: Mapped[str]
    target: Mapped[dict[str, Any]] = mapped_column(Json)
    sealed: Mapped[bytes]
    created_by: Mapped[str]
    enabled: Mapped[bool] = mapped_column(default=True)
    audit_seq: Mapped[int] = mapped_column(BigInteger)
    events_seq: Mapped[int] = mapped_column(BigInteger)
    egress_seq: Mapped[int] = mapped_column(BigInteger)
    batches: Mapped[int] = mapped_column(BigInteger, default=0)
    batch_to: Mapped[list[int] | None] = mapped_column(Json)
    failures: Mapped[int] = mapped_column(default=0)
    failing_since: Mapped[datetime | None]
    last_error: Mapped[str | None]
    interruption_told: Mapped[bool] = mapped_column(default=False)
    last_delivered_at: Mapped[datetime | None]

    @property
    def status(self) -> str:
        if not self.enabled:
            return "disabled"
        return "active" if self.failing_since is None else "failing"

    @property
    def position(self) -> StreamPositions:
        return StreamPositions(self.audit_seq, self.events_seq, self.egress_seq)

    def disable(self) -> None:
        """What it was failing of is over with it."""
        self.enabled = False
        self._became_quiet()

    def begin_batch(self, to: StreamPositions) -> None:
        self.batch_to = [to.audit, to.events, to.egress]

    def give_up_batch(self) -> None:
        """Nothing of it is kept. Its number is not given again: it may be what a bucket has."""
        self.batch_to = None
        self.batches += 1

    def became_delivered(self, to: StreamPositions, at: datetime) -> datetime | None:
        """The batch was confirmed; since when it was interrupted, where that was told."""
        self.audit_seq, self.events_seq, self.egress_seq = to.audit, to.events, to.egress
        self.batch_to, self.last_delivered_at = None, at
        self.batches += 1
        since = self.failing_since if self.interruption_told else None
        self._became_quiet()
        return since

    def became_failing(self, reason: str, at: datetime) -> datetime:
        """Since when it is."""
        self.failures += 1
        self.failing_since = self.failing_since or at
        self.last_error = reason
        return self.failing_since

    def _became_quiet(self) -> None:
        self.failures, self.failing_since, self.last_error = 0, None, None
        self.interruption_told = False


def fetch(db: Session, org_id: str, delivery_id: str, *, lock: bool = False) -> SiemDelivery:
    """The organization's; `lock` holds its row until the transaction ends."""
    found = by_key(db, SiemDelivery, delivery_id, lock=lock)
    if found is None or found.org_id != org_id:
        raise RecordNotFound("SIEM delivery not found")
    return found


def add(db: Session, made: SiemDelivery, begin_at: datetime | None, now: datetime) -> None:
    """With its lane: from the first entry and event of that time on, or from those to come."""
    at = _position(db, made.org_id, begin_at)
    made.audit_seq, made.events_seq, made.egress_seq = at.audit, at.events, at.egress
    db.add(made)
    delivery_lanes.create(db, made.id, made.org_id, LANES, seq=at.events, due=now)
    db.flush()


def remove(db: Session, delivery: SiemDelivery) -> None:
    """With its lane, so that whoever has that now can record nothing."""
    lane = delivery_lanes.fetch(db, delivery.id, lock=True)
    held = fetch(db, delivery.org_id, delivery.id, lock=True)
    db.delete(lane)
    db.delete(held)


def switch(db: Session, delivery: SiemDelivery, enabled: bool, now: datetime) -> SiemDelivery:
    """On, it goes on where it stopped; one that is failing tries again at once."""
    lane = delivery_lanes.fetch(db, delivery.id, lock=True)
    held = fetch(db, delivery.org_id, delivery.id, lock=True)
    if enabled:
        held.enabled = True
        lane.switch_on(now, held.events_seq)
    else:
        held.disable()
        lane.switch_off()
    return held


def _position(db: Session, org_id: str, begin_at: datetime | None) -> StreamPositions:
    head = by_key(db, AuditHead, audit_chain.chain_of(org_id))
    entries = head.seq if head is not None else 0
    happened = events.counts(db, [org_id]).get(org_id, 0)
    if begin_at is not None:
        of_org = select(func.min(AuditEntry.seq)).where(AuditEntry.org_id == org_id)
        first = db.scalar(of_org.where(AuditEntry.created_at >= begin_at))
        entries = entries if first is None else first - 1
        of_org = select(func.min(Event.seq)).where(Event.org_id == org_id)
        first = db.scalar(of_org.where(Event.time >= begin_at))
        happened = happened if first is None else first - 1
    return StreamPositions(entries, happened, egress.last(db, org_id))


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[SiemDelivery]:
    """The organization's, newest first."""
    rows = select(SiemDelivery).where(SiemDelivery.org_id == org_id)
    return pages.keyset(db, rows, SiemDelivery.id, limit=limit, after=after)


def count(db: Session, org_id: str) -> int:
    rows = select(func.count()).select_from(SiemDelivery)
    return db.scalars(rows.where(SiemDelivery.org_id == org_id)).one()


def orgs_with_enabled(db: Session, org_ids: Collection[str]) -> set[str]:
    """Those of them that send anything to a SIEM; for a session of the service itself."""
    rows = select(SiemDelivery.org_id).where(SiemDelivery.org_id.in_(org_ids), SiemDelivery.enabled)
    return set(db.scalars(rows.distinct()))


def cells_metered(db: Session) -> list[str]:
    """The cells with an instance of an organization that sends anything to a SIEM."""
    wanting = select(SiemDelivery.org_id).where(SiemDelivery.enabled)
    rows = select(Instance.cell_id).where(Instance.org_id.in_(wanting), HOSTED).distinct()
    return sorted(db.scalars(rows))


def forget_sent_egress(db: Session, org_id: str) -> None:
    """What each of the organization's deliveries that are enabled has sent."""
    sent = select(func.min(SiemDelivery.egress_seq)).where(
        SiemDelivery.org_id == org_id, SiemDelivery.enabled
    )
    egress.forget_sent(db, org_id, db.scalar(sent) or 0)


def has_more() -> ColumnElement[bool]:
    """Whether a lane's delivery has something to send."""
    of_org = DeliveryLane.org_id
    entries = select(AuditHead.seq).where(AuditHead.org_id == of_org)
    happened = select(EventCount.last).where(EventCount.org_id == of_org)
    sent_out = select(EgressCount.last).where(EgressCount.org_id == of_org)
    more = or_(
        entries.correlate(DeliveryLane).scalar_subquery() > SiemDelivery.audit_seq,
        happened.correlate(DeliveryLane).scalar_subquery() > SiemDelivery.events_seq,
        sent_out.correlate(DeliveryLane).scalar_subquery() > SiemDelivery.egress_seq,
    )
    found = select(SiemDelivery.id).where(SiemDelivery.id == DeliveryLane.id, more)
    return found.correlate(DeliveryLane).exists()
