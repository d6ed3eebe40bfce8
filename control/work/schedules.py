"""Schedules: work that comes round. A turn is a unique row, so many workers enqueue it once."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from control.work.workflow import Workflow, enqueue
from storage.columns import EPOCH
from storage.database import Database, now
from storage.errors import StateConflict
from storage.work import Work

Lanes = Callable[[Session], Mapping[str, dict[str, Any]]]
"""The arguments of a turn in each of several lanes."""


@dataclass(frozen=True)
class Schedule:
    """A workflow that runs every so often, in a lane of its own or once in each of `lanes`.

    A turn that comes while the one before it in its lane has not ended is left out.
    """

    name: str
    workflow: Workflow
    every_s: float
    lanes: Lanes | None = None


@dataclass(frozen=True)
class ScheduledRun:
    name: str
    lane: str
    args: dict[str, Any]
    of: Schedule


def enqueue_due(database: Database, schedules: Iterable[Schedule]) -> None:
    """Enqueue each turn that has come and is not there yet."""
    with database.read() as db:
        turns = [turn for each in schedules for turn in _turns(db, each)]
        wanting = _wanting(db, turns)
    for turn in wanting:
        try:
            with database.write() as db:
                place = (turn.name, slot(turn.of, now(db)))
                enqueue(db, turn.of.workflow, turn.lane, turn.args, slot=place)
        except StateConflict:
            continue  # another worker was first


def are_kept(db: Session, since: datetime) -> bool:
    """Whether any turn has come since then, or is under way: some worker looks after them."""
    turns = exists().where(Work.schedule.is_not(None), Work.due.is_not(None) | (Work.slot > since))
    return bool(db.scalar(select(turns)))


def slot(each: Schedule, moment: datetime) -> datetime:
    """The beginning of the turn that the moment falls in."""
    return EPOCH + (moment - EPOCH) // timedelta(seconds=each.every_s) * timedelta(
        seconds=each.every_s
    )


def _turns(db: Session, each: Schedule) -> list[ScheduledRun]:
    if each.lanes is None:
        return [ScheduledRun(each.name, f"schedule:{each.name}", {}, each)]
    lanes = each.lanes(db).items()
    return [ScheduledRun(f"{each.name} {lane}", lane, args, each) for lane, args in lanes]


def _wanting(db: Session, turns: list[ScheduledRun]) -> list[ScheduledRun]:
    """Those that are neither there nor wait for the one before: one question for all."""
    moment = now(db)
    slots = {turn.of.name: slot(turn.of, moment) for turn in turns}
    known = select(Work.schedule, Work.slot, Work.due).where(
        Work.schedule.in_([turn.name for turn in turns]),
        Work.slot.in_(set(slots.values())) | Work.due.is_not(None),
    )
    there = {
        (name, place) if due is None else (name, None) for name, place, due in db.execute(known)
    }
    return [
        turn
        for turn in turns
        if (turn.name, None) not in there and (turn.name, slots[turn.of.name]) not in there
    ]
