"""The work table's statements: claim, checkpoint, renew and end, each held by a lease."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Exists,
    Select,
    Table,
    Update,
    and_,
    bindparam,
    case,
    exists,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session, aliased

from control.work import notifier
from control.work.errors import LeaseLost
from storage.columns import DatabaseClock
from storage.database import Database, moment_of, now, on_commit
from storage.lookups import delete_some
from storage.prepared import Prepared
from storage.work import Work

CHANNEL: Final = "menagerie_work"
CELLS: Final = "cells"
"""Whose work it is to ask cells how they are: that of no organization."""
SHARERS: Final = ("person", "org_id")
"""The arguments that say whose an operation is; the first that is there counts."""
ERROR_LENGTH_MAX: Final = 1000
_NOTIFIES: Final = "menagerie_work_notifies"


@dataclass(frozen=True)
class Claim:
    """An operation taken, and whether its deadline had passed by then."""

    work: Work
    overdue: bool


@dataclass(frozen=True)
class PassedOver:
    """Who is to take nothing now; `of_kinds`: none of these `kinds`, of which there are fewer."""

    sharers: Collection[str] = ()
    kinds: Collection[str] = ()
    of_kinds: Collection[str] = ()

    @property
    def asked(self) -> dict[str, list[str]]:
        return {
            "passed_over": list(self.sharers),
            "shared_kinds": list(self.kinds),
            "passed_over_there": list(self.of_kinds),
        }


NOBODY: Final = PassedOver()


@dataclass(frozen=True)
class Lease:
    """Which operation a worker holds, and the number of the lease that lets it."""

    seq: int
    number: int


def notify_workers(db: Session) -> None:
    """Wake the workers when this transaction commits: those here, and on PostgreSQL all others."""
    if _notifies_at_commit(db) and db.get_bind().dialect.name == "postgresql":
        # Those here have heard, so the listener of this process passes over its own.
        db.execute(select(func.pg_notify(CHANNEL, notifier.process())))


def _notifies_at_commit(db: Session) -> bool:
    """Wake the workers of this process at the commit; whether that is new to the transaction."""
    if _NOTIFIES in db.info:
        return False
    db.info[_NOTIFIES] = True
    on_commit(db, notifier.notify_all)
    return True


def lock_lane(db: Session, lane: str) -> datetime:
    """Notify the workers at the commit, too; the moment at which the lane is ours.

    Nobody else adds to the lane until then, so that its order of seq is its order of commits.
    """
    if db.get_bind().dialect.name != "postgresql":
        notify_workers(db)
        return now(db)
    if _notifies_at_commit(db):
        row = _LOCK_LANE_AND_NOTIFY.one_or_none(db, lane=lane, process=notifier.process())
    else:
        row = _LOCK_LANE.one_or_none(db, lane=lane)
    return moment_of(db, row[1])


# What runs for every operation is built once: building costs more than running.

# As columns of one query, which are evaluated in their order: to ask thrice takes thrice as long.
_LOCKED_LANE: Final = select(
    func.pg_advisory_xact_lock(func.hashtextextended(bindparam("lane"), 0)), DatabaseClock()
)
_LOCK_LANE: Final = Prepared(_LOCKED_LANE)
_LOCK_LANE_AND_NOTIFY: Final = Prepared(
    _LOCKED_LANE.add_columns(func.pg_notify(CHANNEL, bindparam("process")))
)


def sharer() -> ColumnElement[str]:
    """Whose an operation is, as threads are shared: an organization's, the cells', nobody's.

    A person's where it says so, who may have several organizations.
    """
    of_cells = case((Work.args["cell_id"].as_string().is_not(None), CELLS), else_="")
    whose = (Work.args[name].as_string() for name in SHARERS)
    return func.coalesce(*whose, of_cells)


def _has_others_ahead() -> Exists:
    """Whether unfinished work is before a row in its lane."""
    earlier = aliased(Work)
    return exists().where(
        earlier.lane == Work.lane, earlier.due.is_not(None), earlier.seq < Work.seq
    )


def _heads() -> Select[Work]:
    """Unfinished work of the kinds with nothing unfinished before it in its lane.

    Not that of those who are passed over; work of nobody in particular never is.
    """

    def among(name: str) -> BindParameter[str]:
        return bindparam(name, expanding=True)

    return select(Work).where(
        Work.due.is_not(None),
        Work.kind.in_(among("kinds")),
        ~_has_others_ahead(),
        sharer().not_in(among("passed_over")),
        or_(Work.kind.not_in(among("shared_kinds")), sharer().not_in(among("passed_over_there"))),
    )


_NEXT_DUE: Final = _heads().with_only_columns(func.min(Work.due), DatabaseClock())
_DUE: Final = (
    _heads()
    .where(Work.due <= bindparam("moment"))
    .order_by(Work.due, Work.seq)
    .limit(1)
    .with_for_update(skip_locked=True)
)

_LEASED: Final = (Work.due.is_not(None), Work.state == "running", Work.holder.is_not(None))
_HOLDERS: Final = select(Work.holder).where(*_LEASED).distinct()


def claim(
    database: Database,
    deadlines: Mapping[str, float],
    lease_s: float,
    holder: str | None = None,
    passed_over: PassedOver = NOBODY,
) -> Claim | None:
    """Take the next due operation that heads its lane, and lease it; None when nothing is due.

    `deadlines` names the kinds that can be run, with the seconds that each may take in all.
    `holder` is the name by which others see that this worker lives; without one the lease alone
    tells. `passed_over` are those whose turn it is not (`FairShare.turns`).
    """
    with database.write() as db:
        moment = now(db)
        given = {"kinds": list(deadlines), "moment": moment, **passed_over.asked}
        work = db.scalars(_DUE, given).one_or_none()
        if work is None:
            return None
        limit = timedelta(seconds=deadlines[work.kind])
        work.due = moment + timedelta(seconds=lease_s)
        work.deadline = work.deadline or moment + limit
        work.lease += 1
        work.holder = holder
        work.state = "running"
        return Claim(work, overdue=moment > work.deadline)


def next_due_s(
    database: Database, kinds: Iterable[str], passed_over: PassedOver = NOBODY
) -> float | None:
    """Seconds until the next operation is due (0 or less: now), or None when there is none."""
    given = {"kinds": list(kinds), **passed_over.asked}
    with database.read() as db:
        due, clock = db.execute(_NEXT_DUE, given).one()
        if due is None:
            return None
        return float((due - clock - database.clock_offset).total_seconds())


@cache
def _held(columns: tuple[str, ...]) -> Update:
    table = Work.__table__
    assert isinstance(table, Table)
    lease = (table.c.seq == bindparam("of_seq"), table.c.lease == bindparam("of_lease"))
    values: dict[str, BindParameter[Any]] = {
        column: bindparam(f"new_{column}") for column in columns
    }
    return (
        table.update().where(*lease, table.c.due.is_not(None)).values(values).returning(table.c.seq)
    )


def checkpoint(db: Session, lease: Lease, **values: Any) -> None:
    """Write to the operation's row, or raise LeaseLost when another lease was given since."""
    parameters = {f"new_{column}": value for column, value in values.items()}
    parameters |= {"of_seq": lease.seq, "of_lease": lease.number}
    if db.execute(_held(tuple(values)), parameters).one_or_none() is None:
        raise LeaseLost(f"operation {lease.seq} is no longer held by lease {lease.number}")


def renew(database: Database, lease: Lease, lease_s: float) -> None:
    """Push the lease's end out; LeaseLost, also beyond the deadline, where none may go on."""
    with database.write() as db:
        moment = now(db)
        deadline = db.scalar(select(Work.deadline).where(Work.seq == lease.seq))
        if deadline is not None and moment > deadline:
            raise LeaseLost(f"operation {lease.seq} is past its deadline")
        checkpoint(db, lease, due=moment + timedelta(seconds=lease_s))


def postpone(database: Database, lease: Lease, after_s: float, **values: Any) -> None:
    """Give the operation back, due again in `after_s`."""
    with database.write() as db:
        due = now(db) + timedelta(seconds=after_s)
        checkpoint(db, lease, due=due, state="waiting", **values)


def waiting_beside(db: Session, lease: Lease, limit: int) -> Sequence[Work]:
    """Others that are due, and of the same kind, sharer and number of tries; oldest first."""
    own = select(Work.kind, sharer(), Work.attempts).where(Work.seq == lease.seq)
    kind, whose, attempts = db.execute(own).one()
    waiting = select(Work).where(
        Work.due <= now(db),
        Work.state == "waiting",
        Work.kind == kind,
        Work.attempts == attempts,
        Work.seq != lease.seq,
        sharer() == whose,
    )
    # By the number, so that two who note something at once lock them in the same order.
    return db.scalars(waiting.order_by(Work.seq).limit(limit)).all()


def holders(database: Database) -> set[str]:
    """The workers that operations are leased to."""
    with database.read() as db:
        return set(db.scalars(_HOLDERS))


def release(database: Database, holder: str) -> None:
    """End the leases of a worker that is gone: what it ran is due now.

    Were it not gone, it would lose no more than at the end of a lease: whatever is claimed next
    has a newer one.
    """
    with database.write() as db:
        freed = {"due": now(db), "state": "waiting", "holder": None}
        db.execute(update(Work).where(*_LEASED, Work.holder == holder).values(freed))
        notify_workers(db)


def end(db: Session, lease: Lease, state: str, error: str | None = None) -> None:
    """Finish the operation, which frees its lane for whoever looks next: its own worker does."""
    cut = error[:ERROR_LENGTH_MAX] if error else None
    checkpoint(db, lease, due=None, state=state, finished_at=now(db), error=cut)


def is_late(db: Session, before: datetime) -> bool:
    """Whether work that may run has been waiting since then; what waits in its lane has no need."""
    return bool(db.scalar(select(exists().where(Work.due < before, ~_has_others_ahead()))))


def is_open(db: Session, lane: str) -> bool:
    """Whether the lane has unfinished work."""
    return bool(db.scalar(select(exists().where(Work.lane == lane, Work.due.is_not(None)))))


def forget_finished(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` operations that ended before that moment; how many went."""
    return delete_some(db, Work, and_(Work.due.is_(None), Work.finished_at < before), limit)
