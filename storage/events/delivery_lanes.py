"""Lanes: how far each receiver has been told, and which deliverer has it now.

A receiver (a webhook endpoint, a delivery to a SIEM) has one lane of its own id. Whoever takes it
has it alone until `leased_until`, under a number that grows with every taking; who was given an
older number can write nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, ForeignKey, Index, or_, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Owned, Record
from storage.errors import RecordNotFound
from storage.events.events import EventCount
from storage.lookups import by_key

SLOW_FOR: Final = timedelta(minutes=1)
"""Longer than it takes to hang again: who answers every other time soon would else hang among
those who do not."""


class DeliveryLane(Owned, Record):
    __tablename__ = "delivery_lanes"
    __table_args__ = (
        Index(None, "kind", "due"),
        Index(None, "retry_at"),
        Index(None, "org_id"),
        Index(None, "holder"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    kind: Mapped[str]
    seq: Mapped[int] = mapped_column(BigInteger)
    """The number of the last event of the organization that was seen to."""
    due: Mapped[datetime | None]
    """Not taken before. None: it is switched off."""
    retry_at: Mapped[datetime | None]
    """No delivery that is to be tried again is due before; None: there is none."""
    failures: Mapped[int] = mapped_column(default=0)
    """Attempts that failed in a row."""
    failing_since: Mapped[datetime | None]
    is_slow: Mapped[bool] = mapped_column(default=False)
    """Whether its last answer took long."""
    slow_until: Mapped[datetime | None]
    """Until then it counts as slow, however soon it has answered since."""
    taken_at: Mapped[datetime | None]
    lease: Mapped[int] = mapped_column(BigInteger, default=0)
    holder: Mapped[str | None]
    leased_until: Mapped[datetime | None]

    def note_success(self, now: datetime, *, is_slow: bool) -> None:
        if self.failures and self.due is not None:
            self.due = now
        self.failures, self.failing_since = 0, None
        self._note_speed(now, is_slow)

    def note_failure(self, now: datetime, *, is_slow: bool) -> None:
        self.failures += 1
        self.failing_since = self.failing_since or now
        self._note_speed(now, is_slow)

    def is_doubtful(self, now: datetime) -> bool:
        """Its last attempt failed, or one took long lately: it may hold its place for long."""
        lately = self.slow_until is not None and self.slow_until > now
        return self.failures > 0 or self.is_slow or lately

    def _note_speed(self, now: datetime, is_slow: bool) -> None:
        self.is_slow = is_slow
        if is_slow:
            self.slow_until = now + SLOW_FOR

    def try_again_at(self, moment: datetime) -> None:
        """A delivery of it is due then."""
        self.retry_at = moment if self.retry_at is None else min(self.retry_at, moment)

    def switch_off(self) -> None:
        """Whoever has it now has it no more."""
        self.due = self.retry_at = self.holder = self.leased_until = None
        self.lease += 1

    def switch_on(self, now: datetime, seq: int) -> None:
        """From the event after `seq` on."""
        self.seq, self.due = seq, now
        self.failures, self.failing_since, self.is_slow = 0, None, False

    def give_back(self) -> None:
        self.holder = self.leased_until = None


@dataclass(frozen=True)
class LaneHeld:
    """A lane that was taken, by which lease, and what counts for its share."""

    id: str
    org_id: str
    lease: int
    is_doubtful: bool


def _is_doubtful(now: datetime) -> ColumnElement[bool]:
    """As `DeliveryLane.is_doubtful`."""
    lately = DeliveryLane.slow_until.is_not(None) & (DeliveryLane.slow_until > now)
    return or_(DeliveryLane.failures > 0, DeliveryLane.is_slow, lately)


def create(
    db: Session, lane_id: str, org_id: str, kind: str, *, seq: int, due: datetime | None
) -> DeliveryLane:
    made = DeliveryLane(id=lane_id, org_id=org_id, kind=kind, seq=seq, due=due)
    db.add(made)
    return made


def fetch(db: Session, lane_id: str, *, lock: bool = False) -> DeliveryLane:
    found = by_key(db, DeliveryLane, lane_id, lock=lock)
    if found is None:
        # Each receiver has one, so that one was deleted since it was read.
        raise RecordNotFound("not found: it was deleted a moment ago")
    return found


def of(db: Session, lane_ids: Collection[str]) -> dict[str, DeliveryLane]:
    """By id, without those that were deleted meanwhile."""
    rows = select(DeliveryLane).where(DeliveryLane.id.in_(lane_ids))
    return {lane.id: lane for lane in db.scalars(rows)}


def has_events() -> ColumnElement[bool]:
    """Whether the organization of a lane has events after its number."""
    newest = select(EventCount.last).where(EventCount.org_id == DeliveryLane.org_id)
    return newest.correlate(DeliveryLane).scalar_subquery() > DeliveryLane.seq


def waiting(
    db: Session,
    more: Mapping[str, ColumnElement[bool]],
    now: datetime,
    limit: int,
    *,
    with_doubtful: bool,
    busy: Collection[str] = (),
) -> list[tuple[str, str, bool]]:
    """Lanes that may be taken and have more to tell: id, organization and whether it is doubtful.

    `more` says by kind when a lane has; those of `busy` organizations are left out. Whoever was
    taken longest ago comes first.
    """
    free = or_(DeliveryLane.leased_until.is_(None), DeliveryLane.leased_until <= now)
    doubtful = _is_doubtful(now)
    rows = select(DeliveryLane.id, DeliveryLane.org_id, doubtful).where(
        DeliveryLane.due <= now, free, _has_more(more)
    )
    if not with_doubtful:
        rows = rows.where(~doubtful)
    if busy:
        rows = rows.where(DeliveryLane.org_id.not_in(busy))
    rows = rows.order_by(DeliveryLane.taken_at.asc().nulls_first()).limit(limit)
    return list(db.execute(rows).tuples())


def next_due(
    db: Session, more: Mapping[str, ColumnElement[bool]], after: datetime, until: datetime
) -> datetime | None:
    """When the first lane may be taken that has more to tell, of those that rest until then."""
    rows = select(DeliveryLane.due).where(
        DeliveryLane.kind.in_(more), DeliveryLane.due > after, DeliveryLane.due <= until
    )
    return db.scalar(rows.where(_has_more(more)).order_by(DeliveryLane.due).limit(1))


def _has_more(more: Mapping[str, ColumnElement[bool]]) -> ColumnElement[bool]:
    return or_(*((DeliveryLane.kind == kind) & has_more for kind, has_more in more.items()))


def take(
    db: Session, lane_ids: Collection[str], holder: str | None, now: datetime, lease_s: float
) -> list[DeliveryLane]:
    """Those of them that nobody has taken meanwhile; held by the transaction, too."""
    rows = (
        select(DeliveryLane)
        .where(
            DeliveryLane.id.in_(lane_ids),
            DeliveryLane.due <= now,
            or_(DeliveryLane.leased_until.is_(None), DeliveryLane.leased_until <= now),
        )
        .order_by(DeliveryLane.id)
        .with_for_update(skip_locked=True)
    )
    taken = list(db.scalars(rows))
    for lane in taken:
        lane.lease += 1
        lane.holder, lane.taken_at = holder, now
        lane.leased_until = leased_until(now, lease_s)
    return taken


def leased_until(now: datetime, lease_s: float) -> datetime:
    return now + timedelta(seconds=lease_s)


def locked(db: Session, lane_ids: Collection[str]) -> dict[str, DeliveryLane]:
    """Whoever has them, until the transaction ends; in the order of their ids."""
    rows = select(DeliveryLane).where(DeliveryLane.id.in_(lane_ids)).order_by(DeliveryLane.id)
    found = db.scalars(rows.with_for_update().execution_options(populate_existing=True))
    return {lane.id: lane for lane in found}


def with_retries(
    db: Session, kind: str, now: datetime, limit: int, *, full: Collection[str]
) -> list[tuple[str, str]]:
    """Lanes with a delivery that is due again, those due longest first; not those in `full`."""
    rows = select(DeliveryLane.id, DeliveryLane.org_id).where(
        DeliveryLane.kind == kind, DeliveryLane.retry_at <= now
    )
    if full:
        rows = rows.where(DeliveryLane.id.not_in(full))
    return list(db.execute(rows.order_by(DeliveryLane.retry_at).limit(limit)).tuples())


def next_retry(db: Session, kind: str, *, full: Collection[str]) -> datetime | None:
    """When the first of these lanes, not those in `full`, has a delivery that is due again."""
    rows = select(DeliveryLane.retry_at).where(
        DeliveryLane.kind == kind, DeliveryLane.retry_at.is_not(None)
    )
    if full:
        rows = rows.where(DeliveryLane.id.not_in(full))
    return db.scalar(rows.order_by(DeliveryLane.retry_at).limit(1))


def holders(db: Session) -> set[str]:
    """The deliverers that have a lane."""
    rows = select(DeliveryLane.holder).where(DeliveryLane.holder.is_not(None)).distinct()
    return {each for each in db.scalars(rows) if each is not None}


def free(db: Session, holder: str) -> None:
    """End the leases of a deliverer that is gone. Were it not, it would write nothing more."""
    values: dict[str, Any] = {"holder": None, "leased_until": None, "lease": DeliveryLane.lease + 1}
    db.execute(update(DeliveryLane).where(DeliveryLane.holder == holder).values(values))
