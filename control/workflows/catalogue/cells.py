"""Cells: what each runs and where, asked for again and again, so that the catalogue is true.

Whatever asks one cell again and again does so in that cell's own lane, so that one which does not
answer delays no other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog
from sqlalchemy.orm import Session

from control.cells.client import CellRefused, CellUnavailable
from control.services import Services
from control.work import Again, Operation, Schedule, enqueue, workflow
from storage import identifiers
from storage.catalogue import cells
from storage.catalogue.cells import Cell
from storage.database import now

EVERY_S: Final = 30
LOOK_AGAIN_S: Final = 0.2
SKEW_TOLD_S: Final = 30
"""Beyond it a cell believes only what answers its challenge."""
_log = structlog.get_logger("cells")


def in_lanes(db: Session) -> dict[str, dict[str, Any]]:
    """The lane of each cell, with the arguments of what is asked of it."""
    return {f"cell:{cell.id}": {"cell_id": cell.id} for cell in cells.every(db)}


def cell_of(op: Operation) -> Cell:
    """The one that the operation is about."""
    with op.database.read() as db:
        return cells.fetch(db, op.args["cell_id"])


@contextmanager
def left_to_the_next_turn(cell: Cell) -> Iterator[None]:
    """A cell that does not answer is no failure of what asks again soon anyway."""
    try:
        yield
    except (CellUnavailable, CellRefused) as error:
        _log.warning("cell is not responding", cell_id=cell.id, error=str(error))


@workflow("cells.refresh", deadline_s=300)
def refresh_one(op: Operation) -> None:
    cell = cell_of(op)
    with left_to_the_next_turn(cell):
        refresh(op.services, cell.id)


@workflow("cells.hear", deadline_s=300)
def hear(op: Operation) -> None:
    """Of one cell that just started, as soon as it answers."""
    try:
        refresh(op.services, op.args["cell_id"])
    except CellUnavailable as error:
        raise Again(LOOK_AGAIN_S) from error


def expect(db: Session, cell: Cell) -> None:
    """Forget that the cell was heard of: it starts, and may find other engines than before.

    It takes orders again once it has described itself. Turns of the schedule are too far between.
    """
    cell.last_seen_at, cell.expected_at = None, now(db)
    # In a lane of its own, or it waited for the lease of one whose worker was killed.
    enqueue(db, hear, identifiers.new("hear_"), {"cell_id": cell.id})


def refresh(services: Services, cell_id: str) -> None:
    """Ask the cell to describe itself and record it; raises as the cell's client does."""
    with services.database.read() as db:
        client = services.cells.for_cell(cells.fetch(db, cell_id))
    told = client.describe()
    with services.database.write() as db:
        cell = cells.fetch(db, cell_id)
        cell.ports = told["ports"]
        cell.engines = told["engines"]
        # An older cell does not say.
        cell.refused = told.get("refused", [])
        cell.capacity = told.get("capacity")
        cell.has_second_store = told.get("has_second_store", False)
        cell.ca_root_pem = told["ca"]["root_pem"]
        cell.ca_chain_pem = told["ca"]["chain_pem"]
        cell.last_seen_at = now(db)
        if "clock" in told:
            cell.clock_skew_s = told["clock"]["host_time"] - cell.last_seen_at.timestamp()
            if abs(cell.clock_skew_s) > SKEW_TOLD_S:
                _log.warning("cell clock is off", cell_id=cell_id, skew_s=round(cell.clock_skew_s))


SCHEDULE: Final = Schedule("cells", refresh_one, every_s=EVERY_S, lanes=in_lanes)
