"""The workflows of the control plane as tests start them: by kind, or by a schedule's turn."""

from typing import Any, Final

from sqlalchemy.orm import Session

from control import work, workflows
from storage.work import Work

WORK: Final = work.collect(workflows)


def enqueue(
    db: Session, kind: str, lane: str, args: dict[str, Any] | None = None, *, after_s: float = 0
) -> Work:
    return work.enqueue(db, WORK.workflows[kind], lane, args, after_s=after_s)


def take_turn(db: Session, kind: str) -> None:
    """What the schedule of that workflow would start now, in each of its lanes."""
    schedule = next(each for each in WORK.schedules if each.workflow.kind == kind)
    lanes = {f"test:{kind}": {}} if schedule.lanes is None else schedule.lanes(db)
    for lane, args in lanes.items():
        work.enqueue(db, schedule.workflow, lane, args)
