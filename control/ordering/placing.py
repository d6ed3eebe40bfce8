"""Ordering an instance, from what is asked to its record: terms, checks, cell and name."""

import secrets
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from control.ordering import budgeting, capacity
from control.ordering.requester import Requester
from control.policy import orders, quotas
from control.policy.catalogue import ENGINES, Catalogue, CellReport, make_catalogue
from control.policy.orders import Alteration, Order, Terms
from control.policy.plans import PLANS, SECURE
from control.policy.quotas import Usage
from control.policy.violations import refuse
from storage import identifiers
from storage.access import baa_signatures
from storage.access.projects import Project
from storage.catalogue import cells
from storage.catalogue.cells import Cell
from storage.data.backups import Backup
from storage.errors import StateConflict, StorageUnavailable
from storage.instances import allocations, instances, of_projects
from storage.instances.instances import Instance
from storage.network import networks

Body = dict[str, Any]

BREAKS = "the order is invalid in {} places"
_ORDERED = ("engine", "size", "engine_version", "region", "placement", "storage_bytes")
_ALTERED = ("size", "storage_bytes", "engine_version", "placement")


def catalogue(db: Session) -> Catalogue:
    """What can be ordered: what the cells last said they run."""
    return _offered_by(cells.every(db))


def _offered_by(every: Iterable[Cell]) -> Catalogue:
    return make_catalogue(CellReport.of(cell.region, cell.engines, cell.refused) for cell in every)


def terms(by: Requester, placement: str, every: Iterable[Cell] | None = None) -> Terms:
    """What the requester's organization may have. `every` cell is read where it is not given."""
    known = list(cells.every(by.db) if every is None else every)
    offering = [cell for cell in known if cell.placement == placement]
    return Terms(
        catalogue=_offered_by(offering or known),
        plan=PLANS[by.org.plan],
        usage=_usage(by),
        default_region=by.org.default_region,
        baa_signed=placement == SECURE and baa_signatures.is_signed(by.db, by.org.id),
        # Without any cell it is the engine that nobody offers.
        is_offered=bool(offering) or not known,
    )


def _usage(by: Requester) -> Usage:
    """What waits to be applied counts as what has been: nobody is asked again then."""
    return Usage(*allocations.of_organization(by.db, by.org.id))


def settle(by: Requester, body: Body, every: Iterable[Cell]) -> tuple[Order, Terms]:
    """The order with everything chosen that was left out; raises Invalid with all that is wrong."""
    order = Order(**{name: body[name] for name in _ORDERED if name in body})
    held_against = terms(by, order.placement, every)
    refuse(orders.check_order(order, held_against), BREAKS)
    return orders.settle(order, held_against), held_against


def check_alteration(by: Requester, instance: Instance, body: Body) -> None:
    """Raises Invalid with all that is wrong with changing the instance so."""
    current = Order(**{name: getattr(instance, name) for name in _ORDERED})
    asked = Alteration(**{name: body[name] for name in _ALTERED if name in body})
    refuse(orders.check_alteration(current, asked, terms(by, current.placement)), BREAKS)
    budgeting.check_alteration(by, instance, asked)
    if asked.size is not None or asked.storage_bytes is not None:
        capacity.check_growth(by, instance, asked)
    elif instance.needs_room and (asked.engine_version or asked.placement):
        capacity.check_wake(by, instance, "change")


def kept_until(by: Requester, instance: Instance, now: datetime) -> datetime:
    """Until when a deleted instance's data is kept; one that never ran has none."""
    if instance.ready_at is None:
        return now
    return now + timedelta(days=PLANS[by.org.plan].retention_days)


def check_return(by: Requester, instance: Instance) -> None:
    """Raises StateConflict where the undeleted instance, as it is to be, has no room any more."""
    by.db.flush()
    broken = quotas.check_return(PLANS[by.org.plan], _usage(by))
    if broken:
        raise StateConflict("cannot undelete the instance now: " + broken[0]["message"])
    budgeting.check_return(by, instance)
    if instance.desired_status == "running":
        capacity.check_wake(by, instance, "undelete")


def settle_copy(by: Requester, source: Order, body: Body) -> Order:
    """The order that a copy of the data of `source` comes to; raises Invalid with all wrong."""
    asked = Alteration(**{name: body[name] for name in _ALTERED if name in body})
    refuse(orders.check_branch(source, asked, terms(by, source.placement)), BREAKS)
    return orders.branch(source, asked)


def preview(by: Requester, project: Project, body: Body) -> Body:
    """What placing the order would come to. Nothing is made."""
    every = cells.every(by.db)
    order, held_against = settle(by, body, every)
    _choose_cell(by, order, body, every)
    name = body.get("name") or _name(order.engine, identifiers.new("inst_"))
    _check_name(by, project, name)
    budgeting.check_order(by, order)
    come_to = orders.preview(order, held_against, by.prices.at(by.now))
    return {
        "order": {
            **asdict(order),
            "name": name,
            "maintenance_window": body.get("maintenance_window"),
        },
        "cost_usd_cents_month": come_to["cost_usd_cents_per_month"],
        "quota_left": come_to["quota_left"],
        "spending_cap_left_cents": budgeting.left_cents(by, order),
    }


def place(by: Requester, project: Project, body: Body) -> Instance:
    """The ordered instance, in status `requested`, on a cell that can run it."""
    every = cells.every(by.db)
    order, _ = settle(by, body, every)
    details = {
        "project_id": project.id,
        "team_id": project.team_id,
        "maintenance_window": body.get("maintenance_window"),
    }
    cell = _choose_cell(by, order, body, every, lock=True)
    return _add(by, order, cell, body.get("name"), details)


def place_branch(by: Requester, source: Instance, body: Body) -> Instance:
    """The branch, in status `requested`, on the cell of its source, where the data is."""
    current = Order(**{name: getattr(source, name) for name in _ORDERED})
    details = {
        "project_id": source.project_id,
        "team_id": source.team_id,
        "branch_of": source.id,
    }
    return _place_copy(by, source, current, details, body)


def place_restored(
    by: Requester, source: Instance, backup: Backup, project: Project, body: Body
) -> Instance:
    """A new instance for the data of a backup of `source`, in status `requested`.

    On the cell of its source, which alone has the key of the backup.
    """
    of_backup = {name: getattr(backup, name) for name in ("engine", "size", "engine_version")}
    current = Order(
        **of_backup,
        region=source.region,
        placement=source.placement,
        storage_bytes=backup.storage_bytes,
    )
    details = {"project_id": project.id, "team_id": project.team_id}
    return _place_copy(by, source, current, details, body)


def _place_copy(
    by: Requester, source: Instance, current: Order, details: Body, body: Body
) -> Instance:
    order = settle_copy(by, current, body)
    cell = cells.fetch(by.db, source.cell_id)
    capacity.with_room(by, order, [cell], storage_asked="storage_bytes" in body, lock=True)
    copy = _add(by, order, cell, body.get("name"), details)
    networks.hand_on(by.db, source, copy)
    return copy


def _add(by: Requester, order: Order, cell: Cell, name: str | None, details: Body) -> Instance:
    budgeting.check_order(by, order)
    instance_id = identifiers.new("inst_")
    instance = Instance(
        **asdict(order),
        **_address(order, instance_id, cell),
        **details,
        id=instance_id,
        org_id=by.org.id,
        name=name or _name(order.engine, instance_id),
        requested_by=by.requested_by,
    )
    instances.add(by.db, instance)
    return instance


def _address(order: Order, instance_id: str, cell: Cell) -> Body:
    """Where the instance will be reached: computed once, here, and handed to the cell."""
    engine = ENGINES[order.engine]
    label = f"{engine.label}-{instance_id.removeprefix('inst_').lower()}"
    return {
        "cell_id": cell.id,
        "host": f"{label}.{order.region}.{cell.instance_domain}",
        "port": cell.ports.get(engine.protocol, engine.ports[0]),
    }


def _choose_cell(
    by: Requester, order: Order, body: Body, every: Iterable[Cell], *, lock: bool = False
) -> Cell:
    """Of those with room that offer placement and version in the region, the least used one.

    One that is silent is taken only where all of them are.
    """
    able = {
        cell.id: cell
        for cell in every
        if cell.region == order.region
        and cell.placement == order.placement
        and any(
            found["engine"] == order.engine and order.engine_version in found["versions"]
            for found in cell.engines
        )
    }
    if not able:
        raise StorageUnavailable(f"no cell offers {order.engine} {order.engine_version} any longer")
    asked = "storage_bytes" in body
    roomy = capacity.with_room(by, order, able.values(), storage_asked=asked, lock=lock)
    heard = [place for place in roomy if not able[place.cell_id].is_silent(by.now)] or roomy
    fewest = min(place.instances for place in heard)
    return able[secrets.choice([p.cell_id for p in heard if p.instances == fewest])]


def _check_name(by: Requester, project: Project, name: str) -> None:
    """What the database holds when the order is placed, asked beforehand."""
    if of_projects.is_name_taken(by.db, project.id, name):
        raise StateConflict("the project already has an instance with this name")


def _name(engine: str, instance_id: str) -> str:
    return f"{engine}-{instance_id[-6:].lower()}"
