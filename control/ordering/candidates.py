"""Where there is room: cells, as placement's rules see them, counted within the transaction."""

from collections.abc import Collection

from sqlalchemy.orm import Session

from control.policy.placement import Amount, Candidate, Overcommit, amount
from control.policy.sizes import SIZES
from storage.catalogue import cells
from storage.catalogue.cells import Cell
from storage.instances import allocations
from storage.instances.allocations import Allocations


def candidates(
    db: Session,
    of: Collection[Cell],
    overcommit: Overcommit,
    *,
    besides: str | None = None,
    lock: bool = False,
) -> list[Candidate]:
    """These cells and what is allocated of them, except to the instance `besides`.

    With `lock` nobody else allocates anything of them until the transaction ends.
    """
    ids = sorted(cell.id for cell in of)
    if lock:
        cells.lock(db, of)
    allocated = allocations.by_cell(db, ids, besides=besides)
    return [
        Candidate.of(cell.id, cell.capacity, _sum(found), overcommit, found.instances)
        for cell in sorted(of, key=lambda cell: cell.id)
        for found in [allocated[cell.id]]
    ]


def _sum(found: Allocations) -> Amount:
    whole = Amount(storage_bytes=found.storage_bytes)
    for name, count in found.sizes.items():
        size = SIZES[name]
        whole += Amount(size.vcpu * count, size.memory_bytes * count)
    for old, new in found.growing:
        before, after = amount(SIZES[old], 0), amount(SIZES[new], 0)
        # Until it has shrunk it is as large as it was.
        more = (after.vcpu - before.vcpu, after.memory_bytes - before.memory_bytes)
        whole += Amount(max(0.0, more[0]), max(0, more[1]))
    return whole
