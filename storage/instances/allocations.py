"""What of each cell is allocated to instances: CPU and memory by size, and storage."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from sqlalchemy import and_, bindparam, func, or_, select
from sqlalchemy.orm import Session

from storage import tenancy
from storage.columns import is_among
from storage.instances.changes import PENDING, Change
from storage.instances.instances import HOSTED, LIVE, Instance
from storage.prepared import Prepared

# One that somebody paused gives its CPU and memory back when it has stopped. One that paused
# because it was idle keeps them: the next connection wakes it, and asks nobody. One that failed to
# resume or to wake is as it was before.
_COMPUTES = or_(
    Instance.desired_status == "running",
    Instance.status == "pausing",
    and_(
        Instance.desired_status == "paused",
        Instance.status.in_(("paused", "failed")),
        Instance.paused_by == "idle",
    ),
)


# Asked by every order, so built once. Until an instance is erased its data is there.
_MINE = (
    is_among(Instance.cell_id, "cell_ids"),
    HOSTED,
    Instance.id != bindparam("besides"),
)
_KEPT = Prepared(
    select(
        Instance.cell_id,
        Instance.size,
        func.count().filter(_COMPUTES),
        func.count().filter(LIVE),
        func.sum(Instance.storage_bytes),
    )
    .where(*_MINE)
    .group_by(Instance.cell_id, Instance.size)
)
_GROWING = Prepared(
    select(Instance.cell_id, Instance.size, Instance.storage_bytes, Change.kind, Change.new)
    .join(Instance, Instance.id == Change.instance_id)
    .where(*_MINE, LIVE, PENDING, Change.kind.in_(("size", "storage")))
)


@dataclass
class Allocations:
    """`sizes` counts instances that compute; `growing` are sizes that are to become others.

    `instances` counts those that are wanted, computing or not.
    """

    sizes: Counter[str] = field(default_factory=Counter)
    instances: int = 0
    storage_bytes: int = 0
    growing: list[tuple[str, str]] = field(default_factory=list)


def by_cell(
    db: Session, cell_ids: Collection[str], *, besides: str | None = None
) -> dict[str, Allocations]:
    """For each cell; `besides` is an instance that is not counted."""
    with tenancy.across(db, "all organizations share a cell"):
        return _by_cell(db, cell_ids, besides)


def _by_cell(db: Session, cell_ids: Collection[str], besides: str | None) -> dict[str, Allocations]:
    found = {cell_id: Allocations() for cell_id in cell_ids}
    asked = {"cell_ids": list(cell_ids), "besides": besides or ""}
    for cell_id, size, computing, live, storage_bytes in _KEPT.rows(db, **asked):
        of_cell = found[cell_id]
        of_cell.sizes[size] += computing
        of_cell.instances += live
        of_cell.storage_bytes += int(storage_bytes)
    for cell_id, size, storage_bytes, kind, new in _GROWING.rows(db, **asked):
        if kind == "size":
            found[cell_id].growing.append((size, new))
        else:
            found[cell_id].storage_bytes += max(0, new - storage_bytes)
    return found
