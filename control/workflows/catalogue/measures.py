"""How cells are, by their own last word, and how many instances there are."""

from collections.abc import Callable
from typing import Final

from sqlalchemy.orm import Session

from control.monitoring.measures import Figures, Measure
from storage.catalogue import cells
from storage.catalogue.cells import Cell
from storage.database import now
from storage.instances import instances


def _of_cells(value: Callable[[Cell], float | None]) -> Callable[[Session], Figures]:
    def read(db: Session) -> Figures:
        told = [(cell, value(cell)) for cell in cells.every(db)]
        return [((cell.id, cell.region), said) for cell, said in told if said is not None]

    return read


def _responding(db: Session) -> Figures:
    moment = now(db)
    found = cells.every(db)
    return [((each.id, each.region), int(not each.is_silent(moment))) for each in found]


def _last_seen(cell: Cell) -> float | None:
    return None if cell.last_seen_at is None else cell.last_seen_at.timestamp()


def _instances(db: Session) -> Figures:
    counted = instances.counted(db)
    return [((engine, status), count) for engine, status, count in counted]


_LABELS: Final = ("cell_id", "region")
CELLS_RESPONDING: Final = Measure(
    "menagerie_cell_up",
    "Whether the cell described itself in the last minute.",
    _LABELS,
    _responding,
)
CELLS_SEEN: Final = Measure(
    "menagerie_cell_last_seen_timestamp_seconds",
    "When the cell last described itself, in Unix time.",
    _LABELS,
    _of_cells(_last_seen),
)
CELLS_SKEW: Final = Measure(
    "menagerie_cell_clock_skew_seconds",
    "By how much the clock of the cell's host is ahead of the database's.",
    _LABELS,
    _of_cells(lambda cell: cell.clock_skew_s),
)
INSTANCES: Final = Measure(
    "menagerie_instances",
    "Instances by engine and status, without erased ones.",
    ("engine", "status"),
    _instances,
)
