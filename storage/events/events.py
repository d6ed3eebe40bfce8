"""The outbox: every event an organization may see, written with the change it tells of.

An organization's events are numbered in the order in which they are committed, so that whoever
has read up to a number has missed none before it. Numbers are given as the transaction commits,
under a lock that it takes last: nobody waits in another order, and none is held up for long.
"""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    ForeignKey,
    Index,
    Insert,
    String,
    bindparam,
    cast,
    event,
    func,
    insert,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers
from storage.access.scopes import Within
from storage.columns import DatabaseClock, Json, Owned, Record, is_among
from storage.instances import in_scope
from storage.lookups import delete_oldest
from storage.prepared import Insertion, Prepared

CHANNEL: Final = "menagerie_events"
"""On PostgreSQL, tells of each commit with events whose they are, with the number of the last one
(`org_…:7`), and, without a number, whose rights have changed."""
_NO_TIME: Final = "evt_" + "0" * 10
"""How no event's id begins: these ten digits are its time."""
FIRST: Final = _NO_TIME + "0" * 16
"""The position before all events."""
_UNWRITTEN: Final = "menagerie_events"


class Event(Owned, Record):
    __tablename__ = "events"
    __table_args__ = (Index(None, "org_id", "seq"), Index(None, "instance_id", "seq"))

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    type: Mapped[str]
    time: Mapped[datetime] = mapped_column(default=DatabaseClock())
    instance_id: Mapped[str | None] = mapped_column(ForeignKey("instances.id"))
    data: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    seq: Mapped[int] = mapped_column(BigInteger, server_default="0")


_EVENTS: Final = Insertion(Event)


class EventCount(Owned, Record):
    """How many events an organization has had."""

    __tablename__ = "event_counts"

    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    last: Mapped[int] = mapped_column(BigInteger)


_LAST_OF: Final = Prepared(
    select(EventCount.org_id, EventCount.last).where(is_among(EventCount.org_id, "org_ids"))
)


def append(
    db: Session, org_id: str, kind: str, data: dict[str, Any], instance_id: str | None = None
) -> Event:
    """Add an event to the transaction, which writes it at its end; `data` holds no credential."""
    made = Event(
        id=identifiers.new("evt_"), org_id=org_id, type=kind, instance_id=instance_id, data=data
    )
    db.info.setdefault(_UNWRITTEN, []).append(made)
    return made


def after(
    db: Session,
    org_id: str,
    seq: int,
    *,
    scope: Within,
    limit: int,
    up_to: int | None = None,
    instance_id: str | None = None,
    kinds: Collection[str] | None = None,
) -> list[Event]:
    """Those that follow the number, in their order: of the instance, or of all in the scope.

    Of these kinds, or of all; with `up_to`, as far as that number.

    What concerns no instance is for those who see all of the organization.
    """
    rows = select(Event).where(Event.org_id == org_id, Event.seq > seq)
    if up_to is not None:
        rows = rows.where(Event.seq <= up_to)
    if instance_id is not None:
        rows = rows.where(Event.instance_id == instance_id)
    elif scope is not None:
        rows = rows.where(Event.instance_id.in_(in_scope.ids(org_id, scope)))
    if kinds is not None:
        rows = rows.where(Event.type.in_(kinds))
    return list(db.scalars(rows.order_by(Event.seq).limit(limit)))


def place_after(seq: int) -> str:
    """An id that no event has: it names the place after that number, for whoever goes on there.

    It is good for longer than the event of that number: until one after it is kept no more.
    """
    return f"{_NO_TIME}{seq:016d}"


def position(db: Session, org_id: str, event_id: str) -> int | None:
    """The number of the organization's event, or of a place; None where not all after it is kept.

    Of FIRST, all that is kept.
    """
    if event_id == FIRST:
        return 0
    if event_id.startswith(_NO_TIME):
        number = event_id.removeprefix(_NO_TIME)
        return int(number) if number.isdecimal() and _is_whole(db, org_id, int(number)) else None
    return db.scalar(select(Event.seq).where(Event.org_id == org_id, Event.id == event_id))


def _is_whole(db: Session, org_id: str, seq: int) -> bool:
    """Whether every event that followed the number is kept."""
    last = counts(db, [org_id]).get(org_id, 0)
    if seq >= last:
        return seq == last
    oldest = db.scalar(select(func.min(Event.seq)).where(Event.org_id == org_id))
    return oldest is not None and oldest <= seq + 1


def newest(db: Session, org_id: str) -> tuple[int, str]:
    """The number and the id of the organization's last event."""
    rows = select(Event.seq, Event.id).where(Event.org_id == org_id)
    found = db.execute(rows.order_by(Event.seq.desc()).limit(1)).one_or_none()
    return (0, FIRST) if found is None else found.tuple()


def counts(db: Session, org_ids: Collection[str]) -> dict[str, int]:
    """How many events these organizations have had; for a session of the service itself."""
    return dict(_LAST_OF.rows(db, org_ids=list(org_ids)))


def wake_deliverers(db: Session) -> None:
    """As `wake`, where streams have nothing new to look at."""
    wake(db, "")


def wake(db: Session, org_id: str) -> None:
    """Have deliverers look at once, also where there is no new event; on SQLite any commit does."""
    if db.get_bind().dialect.name == "postgresql":
        db.execute(select(func.pg_notify(CHANNEL, org_id)))


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those written before that moment, oldest first; how many went."""
    return delete_oldest(db, Event.id, "evt_", before, limit)


@event.listens_for(Session, "before_commit")
def write(db: Session) -> None:
    """Give what was appended its numbers; before a session goes on within another organization."""
    unwritten: list[Event] = db.info.pop(_UNWRITTEN, [])
    if not unwritten:
        return
    # Whatever else the transaction changes is locked before the numbers are.
    db.flush()
    of_org: defaultdict[str, list[Event]] = defaultdict(list)
    for each in unwritten:
        of_org[each.org_id].append(each)
    for org_id in sorted(of_org):
        _write_of(db, org_id, of_org[org_id])


def _write_of(db: Session, org_id: str, unwritten: list[Event]) -> None:
    rows = [
        {"id": one.id, "type": one.type, "instance_id": one.instance_id, "data": one.data}
        for one in unwritten
    ]
    if len(rows) == 1 and db.get_bind().dialect.name == "postgresql":
        _ONLY_EVENT.write(db, org_id=org_id, last=1, **rows[0])
        return
    last = _COUNTS.write(db, org_id=org_id, last=len(rows))
    for seq, row in enumerate(rows, last - len(rows) + 1):
        _EVENTS.write(db, org_id=org_id, seq=seq, **row)


def _counting(dialect: str) -> Insert:
    """Held until the commit, which tells of it on PostgreSQL: the number of the last event."""
    if dialect != "postgresql":
        added = sqlite.insert(EventCount)
        return added.on_conflict_do_update(
            index_elements=[EventCount.org_id], set_={"last": EventCount.last + added.excluded.last}
        ).returning(EventCount.last)
    counting = postgresql.insert(EventCount)
    return counting.on_conflict_do_update(
        index_elements=[EventCount.org_id], set_={"last": EventCount.last + counting.excluded.last}
    ).returning(EventCount.last, func.pg_notify(CHANNEL, _told_of_count()))


def _told_of_count() -> ColumnElement[str]:
    return EventCount.org_id + ":" + cast(EventCount.last, String)


_COUNTS: Final = Insertion(EventCount, _counting)


def _counted_and_written(dialect: str) -> Insert:
    """Most transactions have one event, which takes one statement where the database has such."""
    given = ("id", "org_id", "type", "instance_id", "data")
    columns = Event.__table__.columns
    counted = _counting(dialect).values(last=bindparam("last"), org_id=bindparam("org_id"))
    last = counted.cte("counted")
    values = [bindparam(name, type_=columns[name].type) for name in given]
    return insert(Event).from_select([*given, "seq"], select(*values, last.c.last))


_ONLY_EVENT: Final = Insertion(Event, _counted_and_written)
