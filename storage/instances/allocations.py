"""What is allocated to instances: of each cell, by size, and to each organization."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson
from sqlalchemy import BigInteger, Text, and_, bindparam, case, cast, func, or_, select
from sqlalchemy.orm import Session, aliased

from storage import tenancy
from storage.columns import is_among
from storage.instances.changes import Change, is_pending
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


# What waits to be applied counts as what has been: nobody is asked again then. Only one change of
# each kind waits, as an instance that is to be changed is not changed again.
_RESIZED: Final = aliased(Change)
_GROWN: Final = aliased(Change)


def _waits(change: Any, kind: str) -> Any:
    return and_(change.instance_id == Instance.id, is_pending(change), change.kind == kind, LIVE)


_WAITING_BYTES: Final = cast(cast(_GROWN.new, Text), BigInteger)
_BYTES: Final = func.sum(
    case((Instance.storage_bytes < _WAITING_BYTES, _WAITING_BYTES), else_=Instance.storage_bytes)
)

# Asked by every order, so built once. Until an instance is erased its data is there.
_NEW_SIZE: Final = cast(_RESIZED.new, Text)
_OF_CELLS: Final = Prepared(
    select(
        *(Instance.cell_id, Instance.size, _NEW_SIZE),
        func.count().filter(_COMPUTES),
        func.count().filter(LIVE),
        _BYTES,
    )
    .outerjoin(_RESIZED, _waits(_RESIZED, "size"))
    .outerjoin(_GROWN, _waits(_GROWN, "storage"))
    .where(is_among(Instance.cell_id, "cell_ids"), HOSTED, Instance.id != bindparam("besides"))
    .group_by(Instance.cell_id, Instance.size, _NEW_SIZE)
)
_WANTED: Final = Instance.desired_status.in_(("running", "paused"))
_OF_ORGANIZATION: Final = Prepared(
    select(_WANTED, func.count(), _BYTES)
    .outerjoin(_GROWN, and_(_waits(_GROWN, "storage"), _GROWN.org_id == bindparam("org_id")))
    .where(Instance.org_id == bindparam("org_id"), HOSTED)
    .group_by(_WANTED)
)


_BY_ORGANIZATION: Final = (
    select(Instance.org_id, func.count(), _BYTES)
    .outerjoin(_GROWN, _waits(_GROWN, "storage"))
    .where(HOSTED, LIVE)
    .group_by(Instance.org_id)
)


_OF_TEAM: Final = Prepared(
    select(Instance.region, Instance.size, _NEW_SIZE, Instance.storage_bytes, _WAITING_BYTES)
    .outerjoin(_RESIZED, and_(_waits(_RESIZED, "size"), _RESIZED.org_id == bindparam("org_id")))
    .outerjoin(_GROWN, and_(_waits(_GROWN, "storage"), _GROWN.org_id == bindparam("org_id")))
    .where(
        *(Instance.org_id == bindparam("org_id"), Instance.team_id == bindparam("team_id")),
        *(LIVE, Instance.id != bindparam("besides")),
    )
)


_PLANNED: Final = Prepared(
    select(
        *(Instance.id, Instance.region, Instance.size, _NEW_SIZE),
        *(Instance.storage_bytes, _WAITING_BYTES, Instance.desired_status),
    )
    .outerjoin(_RESIZED, and_(_waits(_RESIZED, "size"), _RESIZED.org_id == bindparam("org_id")))
    .outerjoin(_GROWN, and_(_waits(_GROWN, "storage"), _GROWN.org_id == bindparam("org_id")))
    .where(Instance.org_id == bindparam("org_id"), HOSTED, LIVE)
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
    for cell_id, size, new_size, computing, live, storage_bytes in _OF_CELLS.rows(db, **asked):
        of_cell = found[cell_id]
        of_cell.sizes[size] += computing
        of_cell.instances += live
        of_cell.storage_bytes += int(storage_bytes)
        if new_size is not None:
            of_cell.growing += [(size, orjson.loads(new_size))] * live
    return found


class OfOrganization(NamedTuple):
    """`gone` are those that are not wanted any more and not erased yet."""

    wanted: int
    storage_bytes: int
    gone: int
    gone_bytes: int


def of_organization(db: Session, org_id: str) -> OfOrganization:
    """How many instances it has, and the storage that they have or are to have."""
    found = {bool(wanted): held for wanted, *held in _OF_ORGANIZATION.rows(db, org_id=org_id)}
    (count, held), (gone, gone_held) = found.get(True, (0, 0)), found.get(False, (0, 0))
    return OfOrganization(count, int(held), gone, int(gone_held))


def wanted_by_org(db: Session) -> list[tuple[str, int, int]]:
    """Each organization that wants some: how many, and the storage they have or are to have."""
    return [(org_id, count, int(held)) for org_id, count, held in db.execute(_BY_ORGANIZATION)]


def of_team(
    db: Session, org_id: str, team_id: str, *, besides: str | None = None
) -> list[tuple[str, str, int]]:
    """The region, the size and the storage that each wanted instance of the team is to have.

    `besides` is an instance that is left out.
    """
    asked = {"org_id": org_id, "team_id": team_id, "besides": besides or ""}
    return [
        (region, size if new_size is None else orjson.loads(new_size), max(held, more or 0))
        for region, size, new_size, held, more in _OF_TEAM.rows(db, **asked)
    ]


class Planned(NamedTuple):
    """What an instance is to be, once all that was asked for is done."""

    instance_id: str
    region: str
    size: str
    storage_bytes: int
    runs: bool


def planned(db: Session, org_id: str) -> list[Planned]:
    """Each wanted instance of the organization."""
    return [
        Planned(
            instance_id,
            region,
            size if new_size is None else orjson.loads(new_size),
            max(held, more or 0),
            wanted == "running",
        )
        for instance_id, region, size, new_size, held, more, wanted in _PLANNED.rows(
            db, org_id=org_id
        )
    ]
