"""Schedules: work that comes round. A turn is a unique row, so many workers enqueue it once."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from control.work import queue
from storage.columns import EPOCH
from storage.database import Database, now
from storage.errors import Conflict
from storage.work import Work


@dataclass(frozen=True)
class Schedule:
    name: str
    kind: str
    every_s: float


_schedules: Final[dict[str, Schedule]] = {}


def schedule(name: str, kind: str, *, every_s: float) -> None:
    """Run that workflow every so often; a turn that comes while one runs is left out."""
    _schedules[name] = Schedule(name, kind, every_s)


def enqueue_due(database: Database) -> None:
    """Enqueue the turn of each schedule that has come and is not there yet."""
    with database.read() as db:
        wanting = [each for each in _schedules.values() if _wants(db, each)]
    for each in wanting:
        try:
            with database.write() as db:
                turn = (each.name, slot(each, now(db)))
                queue.enqueue(db, each.kind, f"schedule:{each.name}", slot=turn)
        except Conflict:
            continue  # another worker was first


def slot(each: Schedule, moment: datetime) -> datetime:
    """The beginning of the turn that the moment falls in."""
    return EPOCH + (moment - EPOCH) // timedelta(seconds=each.every_s) * timedelta(
        seconds=each.every_s
    )


def _wants(db: Session, each: Schedule) -> bool:
    turn = slot(each, now(db))
    there = exists().where(Work.schedule == each.name, (Work.slot == turn) | Work.due.is_not(None))
    return not db.scalar(select(there))
