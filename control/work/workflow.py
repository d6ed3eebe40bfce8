"""What a workflow is, and how one is started: a function with its kind, deadline and way out."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from control.work.operation import Operation
from control.work.queue import lock_lane
from specserver import tracing
from storage import identifiers
from storage.prepared import Insertion
from storage.work import Work

Steps = Callable[[Operation], None]
OnFailure = Callable[[Operation, Session, str], None]
"""Called once, in the transaction that ends the operation: (operation, db, reason)."""


@dataclass(frozen=True)
class Workflow:
    """`deadline_s` counts from the first start of an operation, retries included.

    Where `joins`, one that has not begun does for those started after it with the same arguments,
    as it reads what holds when it runs; so however often it is started, two are open at most.
    One that goes `beside` has a lane of its own for each instance, where it waits for nothing that
    is under way with the instance.
    One that `asks_strangers`, such as a tenant's name server, takes as long as they like: all of
    these together have a quarter of a worker's threads.
    """

    kind: str
    run: Steps
    deadline_s: float
    on_failure: OnFailure | None = None
    joins: bool = False
    beside: bool = False
    asks_strangers: bool = False

    def lane_of(self, instance_id: str) -> str:
        return f"{instance_id}:{self.kind}" if self.beside else instance_id


def workflow(
    kind: str,
    *,
    deadline_s: float,
    on_failure: OnFailure | None = None,
    joins: bool = False,
    beside: bool = False,
    asks_strangers: bool = False,
) -> Callable[[Steps], Workflow]:
    """Make a function a workflow, known in the database by its kind."""
    return lambda run: Workflow(kind, run, deadline_s, on_failure, joins, beside, asks_strangers)


def enqueue(
    db: Session,
    started: Workflow,
    lane: str,
    args: dict[str, Any] | None = None,
    *,
    after_s: float = 0,
    slot: tuple[str, datetime] | None = None,
) -> Work:
    """Start an operation with the transaction of `db`; it runs once that is committed.

    Operations of one lane run one after the other, in this order. `slot` is a schedule's turn.
    """
    args = {**(args or {}), **tracing.headers()}
    moment = lock_lane(db, lane)
    joined = _waiting(db, started, lane, args) if started.joins else None
    if joined is not None:
        return joined
    values: dict[str, Any] = {
        "operation": identifiers.new("op_"),
        "kind": started.kind,
        "lane": lane,
        "args": args,
        "steps": {},
        "due": moment + timedelta(seconds=after_s),
        "schedule": slot[0] if slot else None,
        "slot": slot[1] if slot else None,
    }
    return Work(seq=_WORK.write(db, **values), **values)


_WORK: Final = Insertion(Work, lambda _dialect: insert(Work).returning(Work.seq))


def _waiting(db: Session, started: Workflow, lane: str, args: dict[str, Any]) -> Work | None:
    """The same operation, not begun yet, held until the commit so that no worker begins it."""
    open_work = select(Work).where(Work.lane == lane, Work.due.is_not(None))
    waiting = open_work.where(Work.kind == started.kind, Work.lease == 0)
    found = db.scalars(waiting.order_by(Work.seq).with_for_update())
    return next((each for each in found if _asked(each.args) == _asked(args)), None)


def _asked(args: dict[str, Any]) -> dict[str, Any]:
    """Without the request that asked."""
    of_request = {"request_id", tracing.HEADER}
    return {name: value for name, value in args.items() if name not in of_request}
