"""What of each cell is promised to instances: CPU and memory by size, and storage."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

from storage import tenancy
from storage.changes import Change
from storage.instances import HOSTED, Instance

# One that somebody paused gives its CPU and memory back when it has stopped. One that paused
# because it was idle keeps them: the next connection wakes it, and asks nobody.
_COMPUTES = or_(
    Instance.desired_status == "running",
    Instance.status == "pausing",
    and_(Instance.status == "paused", Instance.paused_by == "idle"),
)


@dataclass
class Promises:
    """`sizes` counts instances that compute; `growing` are sizes that are to become others."""

    sizes: Counter[str] = field(default_factory=Counter)
    storage_bytes: int = 0
    growing: list[tuple[str, str]] = field(default_factory=list)


def by_cell(
    db: Session, cell_ids: Collection[str], *, besides: str | None = None
) -> dict[str, Promises]:
    """For each cell; `besides` is an instance that is not counted."""
    with tenancy.across(db, "all organizations share a cell"):
        return _by_cell(db, cell_ids, besides)


def _by_cell(db: Session, cell_ids: Collection[str], besides: str | None) -> dict[str, Promises]:
    found = {cell_id: Promises() for cell_id in cell_ids}
    # Until it is erased its data is there.
    mine: list[ColumnElement[bool]] = [Instance.cell_id.in_(cell_ids), HOSTED]
    if besides is not None:
        mine.append(Instance.id != besides)
    computing = select(Instance.cell_id, Instance.size, func.count()).where(*mine, _COMPUTES)
    for cell_id, size, count in db.execute(computing.group_by(Instance.cell_id, Instance.size)):
        found[cell_id].sizes[size] = count
    stored = select(Instance.cell_id, func.sum(Instance.storage_bytes)).where(*mine)
    for cell_id, storage_bytes in db.execute(stored.group_by(Instance.cell_id)):
        found[cell_id].storage_bytes = int(storage_bytes or 0)
    waiting = (
        select(Instance.cell_id, Instance.size, Instance.storage_bytes, Change.kind, Change.new)
        .join(Instance, Instance.id == Change.instance_id)
        .where(*mine, Change.status == "pending", Change.kind.in_(("size", "storage")))
    )
    for cell_id, size, storage_bytes, kind, new in db.execute(waiting):
        if kind == "size":
            found[cell_id].growing.append((size, new))
        else:
            found[cell_id].storage_bytes += max(0, new - storage_bytes)
    return found
