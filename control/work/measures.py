"""What waits to be done, and for how long, by workflow."""

from typing import Final

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import Session

from control.monitoring.measures import Figures, Measure
from storage.database import now
from storage.work import Work

_UNFINISHED: Final = Work.due.is_not(None)


def _queued(db: Session) -> Figures:
    """What waits for its time or for its lane is no backlog; `is_late` is in the other measure."""
    state: ColumnElement[str] = case(
        (Work.state == "running", "running"), (Work.due <= now(db), "due"), else_="scheduled"
    )
    rows = select(Work.kind, state, func.count()).where(_UNFINISHED).group_by(Work.kind, state)
    return [((kind, found), count) for kind, found, count in db.execute(rows)]


def _lateness(db: Session) -> Figures:
    moment = now(db)
    due = (_UNFINISHED, Work.state == "waiting", Work.due <= moment)
    rows = select(Work.kind, func.min(Work.due)).where(*due).group_by(Work.kind)
    found = db.execute(rows).tuples()
    return [((kind,), (moment - since).total_seconds()) for kind, since in found if since]


QUEUED: Final = Measure(
    "menagerie_work_queued_operations",
    "Unfinished operations: running, due, or scheduled for later.",
    ("workflow", "state"),
    _queued,
)
LATENESS: Final = Measure(
    "menagerie_work_oldest_due_seconds",
    "For how long the oldest operation that is due has been waiting.",
    ("workflow",),
    _lateness,
)
