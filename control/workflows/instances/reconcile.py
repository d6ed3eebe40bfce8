"""The reconciler: what cells observe becomes what records say, and lost work is started again."""

from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.work import Operation, Schedule, Workflow, queue, workflow
from control.workflows.access import revocation
from control.workflows.catalogue.cells import cell_of, in_lanes, left_to_the_next_turn
from control.workflows.data import archiving, copies, recovery
from control.workflows.data import restores as restoring
from control.workflows.instances import erasure, findings, lifecycle, resizing, resuming
from control.workflows.instances.fault_isolation import isolated
from control.workflows.instances.starting import start
from control.workflows.network import domains
from control.workflows.network.networks import apply_network, overtake
from storage.catalogue.cells import Cell
from storage.data import restores
from storage.database import Database, now
from storage.errors import RecordNotFound
from storage.instances import instances
from storage.instances.instances import TRANSITIONAL, Instance
from storage.network import networks

EVERY_S: Final = 5
LOST_AFTER: Final = timedelta(seconds=10)
"""A transitional instance without work is touched only after this time, so that races settle."""
RETRY_AFTER: Final = timedelta(seconds=60)
"""How long a delete or erase that failed rests before it is tried again."""
BY_STATUS: Final[dict[str, Workflow]] = {
    "requested": lifecycle.provision,
    "provisioning": lifecycle.provision,
    "pausing": lifecycle.pause,
    "resuming": resuming.resume,
    "resizing": resizing.resize,
    "restoring": restoring.in_place,
    "deleting": erasure.delete,
    "erasing": erasure.erase,
}
"""The workflow that leads out of each transitional status."""
_log = structlog.get_logger("reconcile")


@workflow("reconcile", deadline_s=120)
def reconcile(op: Operation) -> None:
    """Of one cell."""
    cell = cell_of(op)
    with left_to_the_next_turn(cell):
        observe(op, cell)
    restart_lost_work(op.database, cell.id)


def observe(op: Operation, cell: Cell) -> None:
    """Compare one cell's observations with the records, and write what differs."""
    with op.database.read() as db:
        # Read first: a record unchanged since then is older than the observation.
        known, moment = instances.of_cell(db, cell.id), now(db)
    client = op.services.cells.for_cell(cell)
    said = client.observations()
    seen = {each["instance_id"]: each for each in said}
    # Of the others nothing is known, which is not that the cell has lost them.
    known = [row for row in known if row.id not in said.unread]
    mine = [row for row in known if row.status in findings.SETTLED]
    revocation.end_lapsed(op.database, client, known, seen)
    for instance in mine:
        observation = seen.get(instance.id)
        with isolated(instance.id):
            is_due = recovery.is_due(instance, observation, moment)
            if is_due or findings.differs(instance, observation):
                _record(op.database, instance, observation)
    for instance in known:
        observation = seen.get(instance.id) or {}
        reason = observation.get("status_reason")
        told = (None, instance.status_reason, instance.cell_reason)
        is_heard = instance.status in TRANSITIONAL and not observation.get("data_lost")
        if is_heard and reason not in told:
            with isolated(instance.id):
                _hold_up(op.database, instance, str(reason))
    domains.note_certificates(op.database, cell.id, said)
    archiving.note(op.database, cell.id, known, seen)
    overtake(op.database, cell.id, known, said)
    copies.note(op.database, client, cell.id, known, seen)


def _record(database: Database, read: Instance, observation: Answer | None) -> None:
    with database.write() as db:
        instance = instances.fetch(db, read.org_id, read.id, lock=True)
        moved_on = instance.updated_at != read.updated_at or instance.status != read.status
        if moved_on or queue.is_open(db, instance.id):
            return
        if recovery.is_due(instance, observation, now(db)):
            recovery.begin(db, instance)
        else:
            findings.apply(db, instance, observation, now(db))


def _hold_up(database: Database, read: Instance, reason: str) -> None:
    """A start that takes long says why before it ends."""
    with database.write() as db:
        instance = instances.fetch(db, read.org_id, read.id, lock=True)
        if instance.status == read.status:
            instance.is_held_up(reason)


def restart_lost_work(database: Database, cell_id: str) -> None:
    """Start the workflow of every instance of the cell that waits for one and has none."""
    with database.read() as db:
        moment = now(db)
        stuck = [(row.org_id, row.id) for row in _stuck(db, cell_id, moment)]
        before = moment - LOST_AFTER
        untold = [(row.org_id, row.instance_id) for row in networks.untold(db, cell_id, before)]
    for org_id, instance_id in untold:
        with isolated(instance_id), database.write() as db:
            _tell_network(db, instances.fetch(db, org_id, instance_id, lock=True))
    for org_id, instance_id in stuck:
        with isolated(instance_id), database.write() as db:
            instance = _found(db, org_id, instance_id)
            if instance is not None and not queue.is_open(db, instance.id):
                _restart(db, instance)


def _found(db: Session, org_id: str, instance_id: str) -> Instance | None:
    """None where it is gone meanwhile."""
    try:
        return instances.fetch(db, org_id, instance_id, lock=True)
    except RecordNotFound:
        return None


def _restart(db: Session, instance: Instance) -> None:
    if instance.status == "failed" and instance.desired_status == "deleted":
        instance.delete(instance.purge_after)
    elif instance.status == "failed" and instance.desired_status == "erased":
        instance.erase()
    if instance.status in TRANSITIONAL:
        _log.warning("lost work restarted", instance_id=instance.id, status=instance.status)
        start(db, _workflow_of(db, instance), instance)


def _workflow_of(db: Session, instance: Instance) -> Workflow:
    found = BY_STATUS[instance.status]
    if found is restoring.in_place:
        restore = restores.into(db, instance, "in_place")
        # Nobody asked for the restore of what was lost.
        is_lost = restore is None or restore.requested_by is None
        return recovery.recover if is_lost else found
    begins = found is lifecycle.provision
    if begins and restores.into(db, instance, "new_instance") is not None:
        return restoring.new_instance
    return found


def _tell_network(db: Session, instance: Instance) -> None:
    settled = instance.desired_status not in instances.GONE
    if settled and not queue.is_open(db, apply_network.lane_of(instance.id)):
        start(db, apply_network, instance)


def _stuck(db: Session, cell_id: str, moment: datetime) -> list[Instance]:
    transitional = select(Instance).where(
        Instance.cell_id == cell_id,
        Instance.status.in_(sorted(TRANSITIONAL)),
        Instance.updated_at < moment - LOST_AFTER,
    )
    unfinished = select(Instance).where(
        Instance.cell_id == cell_id,
        Instance.status == "failed",
        Instance.desired_status.in_(instances.GONE),
        Instance.updated_at < moment - RETRY_AFTER,
    )
    found: list[Any] = [*db.scalars(transitional), *db.scalars(unfinished)]
    return [row for row in found if not queue.is_open(db, row.id)]


SCHEDULE: Final = Schedule("reconcile", reconcile, every_s=EVERY_S, lanes=in_lanes)
