"""What keeps instances of different placements apart: a cell has those of one placement only."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from storage.catalogue import cells
from storage.catalogue.cells import Cell
from storage.errors import StateConflict
from storage.instances.instances import HOSTED, Instance
from storage.lookups import by_key


def check_cell(db: Session, cell_id: str, placement: str) -> None:
    """Raises StateConflict where the cell, which is to be for `placement`, has other instances.

    The cell is held until the commit, so that no order is placed on it meanwhile.
    """
    known = by_key(db, Cell, cell_id)
    if known is None:
        return
    cells.lock(db, [known])
    others = select(func.count()).select_from(Instance)
    others = others.where(Instance.cell_id == cell_id, HOSTED, Instance.placement != placement)
    count = db.scalars(others).one()
    if count:
        raise StateConflict(
            f"cell_placement: the cell cannot be for {placement} placement, as it has {count}"
            f" {'instance' if count == 1 else 'instances'} of another; set it back, or erase them"
            " first"
        )
