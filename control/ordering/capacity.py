"""Whether what is asked for has room on the machines, beside all that is allocated already."""

from collections.abc import Collection

from sqlalchemy.orm import Session

from control.ordering import budgeting
from control.ordering.candidates import candidates
from control.ordering.requester import Requester
from control.policy.orders import Alteration, Order
from control.policy.placement import (
    Amount,
    Candidate,
    Overcommit,
    amount,
    check_room,
    largest_size,
    refusal,
)
from control.policy.placement import with_room as having_room
from control.policy.plans import PLANS, SHARED
from control.policy.sizes import SIZES
from control.policy.violations import refuse
from storage.catalogue import cells
from storage.catalogue.cells import Cell
from storage.errors import StateConflict
from storage.instances.instances import Instance


def with_room(
    by: Requester, order: Order, of: Collection[Cell], *, storage_asked: bool, lock: bool
) -> list[Candidate]:
    """Those of these cells that have room for the order; raises Invalid where none has.

    With `lock` the room is kept until the transaction ends.
    """
    found = candidates(by.db, of, by.overcommit, lock=lock)
    needed = amount(SIZES[order.size], order.storage_bytes or 0)
    offered = PLANS[by.org.plan].sizes
    refuse(check_room(order.size, needed, found, offered=offered, storage_asked=storage_asked))
    return having_room(needed, found)


def check_growth(by: Requester, instance: Instance, asked: Alteration) -> None:
    """Raises Invalid where the cell has no room for the instance as it would be.

    Whatever does not grow has its room.
    """
    size, storage_bytes = SIZES[asked.size or instance.size], asked.storage_bytes
    before = amount(SIZES[instance.size], instance.storage_bytes)
    if instance.needs_room:
        before = Amount(storage_bytes=instance.storage_bytes)
    needed = amount(size, storage_bytes or instance.storage_bytes).beyond(before)
    found = _own_cell(by, instance)
    offered = PLANS[by.org.plan].sizes
    refuse(
        check_room(
            size.name, needed, found, offered=offered, storage_asked=storage_bytes is not None
        )
    )


def check_wake(by: Requester, instance: Instance, verb: str = "resume") -> None:
    """Raises StateConflict where the CPU and memory that it gave back are allocated to others.

    And PaymentRequired where the organization's spending cap leaves nothing for it to run.
    """
    budgeting.check_wake(by, instance)
    needed = amount(SIZES[instance.size], 0)
    found = _own_cell(by, instance)
    if not having_room(needed, found):
        fitting = largest_size(found, storage_bytes=0)
        reason = refusal(f"size {instance.size}", needed, found, fitting)
        raise StateConflict(f"cannot {verb} the instance now: {reason}")


def _own_cell(by: Requester, instance: Instance) -> list[Candidate]:
    cell = cells.fetch(by.db, instance.cell_id)
    return candidates(by.db, [cell], by.overcommit, besides=instance.id, lock=True)


def regions_with_room(db: Session, overcommit: Overcommit) -> dict[str, list[str]]:
    """For each size the regions in which an instance of it, as it comes, fits now.

    As it comes it has shared placement.
    """
    every = [cell for cell in cells.every(db) if cell.placement == SHARED]
    region = {cell.id: cell.region for cell in every}
    found = candidates(db, every, overcommit)
    return {
        size.name: sorted(
            {
                region[candidate.cell_id]
                for candidate in having_room(amount(size, size.storage_bytes_included), found)
            }
        )
        for size in SIZES.values()
    }
