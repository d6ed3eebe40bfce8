"""Cells: what each runs and where, asked for again and again, so that the catalogue is true."""

from typing import Final

import structlog
from sqlalchemy.orm import Session

from control.cells import CellRefused, CellUnavailable
from control.services import Services
from control.work import Again, Operation, enqueue, schedule, workflow
from storage import cells, identifiers
from storage.database import now

EVERY_S: Final = 30
LOOK_AGAIN_S: Final = 0.2
SKEW_TOLD_S: Final = 30
"""Beyond it a cell believes only what answers its challenge."""
_log = structlog.get_logger("cells")


@workflow("cells.refresh", deadline_s=300)
def refresh_all(op: Operation) -> None:
    with op.database.read() as db:
        known = [cell.id for cell in cells.every(db)]
    for cell_id in known:
        try:
            refresh(op.services, cell_id)
        except (CellUnavailable, CellRefused) as error:
            _log.warning("cell is not responding", cell_id=cell_id, error=str(error))


@workflow("cells.hear", deadline_s=300)
def hear(op: Operation) -> None:
    """Of one cell that just started, as soon as it answers."""
    try:
        refresh(op.services, op.args["cell_id"])
    except CellUnavailable as error:
        raise Again(LOOK_AGAIN_S) from error


def expect(db: Session, cell: cells.Cell) -> None:
    """Forget that the cell was heard of: it starts, and may find other engines than before.

    It takes orders again once it has described itself. Turns of the schedule are too far between.
    """
    cell.last_seen_at = None
    # In a lane of its own, or it waited for the lease of one whose worker was killed.
    enqueue(db, "cells.hear", identifiers.new("hear_"), {"cell_id": cell.id})


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
        cell.ca_root_pem = told["ca"]["root_pem"]
        cell.ca_chain_pem = told["ca"]["chain_pem"]
        cell.last_seen_at = now(db)
        if "clock" in told:
            cell.clock_skew_s = told["clock"]["host_time"] - cell.last_seen_at.timestamp()
            if abs(cell.clock_skew_s) > SKEW_TOLD_S:
                _log.warning("cell clock is off", cell_id=cell_id, skew_s=round(cell.clock_skew_s))


schedule("cells", "cells.refresh", every_s=EVERY_S)
