"""Egress by the hour: what connections have sent out, as the gateways of cells counted it."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from control.billing import correcting
from control.cells.answer_checks import Answer
from control.policy.months import HOUR, hour_of
from control.policy.prices import PriceBook
from control.policy.rating import EGRESS
from control.work import Operation, Schedule, workflow
from control.workflows.catalogue.cells import cell_of, in_lanes, left_to_the_next_turn
from storage.billing.hourly import owners
from storage.billing.meters import MeterReading
from storage.catalogue import cells
from storage.catalogue.cells import Cell
from storage.database import now

HOURS_MAX: Final = 71
"""A cell that was away for longer has forgotten the hours before."""
WRITTEN_WITHIN: Final = timedelta(minutes=2)
"""By then a gateway has written down what was sent in an hour, by whatever clock it has."""
AT_ONCE: Final = 1_000


@workflow("usage.egress", deadline_s=600)
def meter(op: Operation) -> None:
    """Of one cell. The last hour that it was asked for is asked for again: it only grows."""
    book = op.services.settings.prices
    if not book.is_on:
        return
    cell = cell_of(op)
    client = op.services.cells.for_cell(cell)
    with op.database.read() as db:
        due = hours_due(cell, now(db))
    with left_to_the_next_turn(cell):
        for hour in due:
            told = client.sent_in(hour)
            for first in range(0, len(told), AT_ONCE):
                with op.database.write() as db:
                    _note(db, book, cell.id, hour, told[first : first + AT_ONCE])
            with op.database.write() as db:
                cells.fetch(db, cell.id).egress_metered_hour = hour


def hours_due(cell: Cell, moment: datetime) -> list[datetime]:
    """Those that are over, from the last that was metered; at the first time, only the last."""
    end = hour_of(moment - WRITTEN_WITHIN)
    last = cell.egress_metered_hour or end - HOUR
    begin = max(last, end - HOURS_MAX * HOUR)
    return [begin + number * HOUR for number in range(max(0, (end - begin) // HOUR))]


def _note(
    db: Session, book: PriceBook, cell_id: str, hour: datetime, told: Collection[Answer]
) -> None:
    """Of its own instances only: a cell that was taken over makes nobody else pay."""
    known = owners(db, cell_id, [each["instance_id"] for each in told])
    readings = [
        MeterReading(one.instance_id, EGRESS, hour, *one[1:], each["bytes_out"])
        for each in told
        if (one := known.get(each["instance_id"])) is not None
    ]
    correcting.note(db, book, readings, now(db))


SCHEDULE: Final = Schedule("usage_egress", meter, every_s=600, lanes=in_lanes)
