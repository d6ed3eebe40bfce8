"""The reconciler: what cells observe becomes what records say, and lost work is started again."""

from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from control.cells import Answer, CellRefused, CellUnavailable
from control.work import Operation, queue, schedule, workflow
from control.workflows import access, domains, findings, starting
from control.workflows.networks import NETWORK
from storage import cells, instances, networks
from storage.cells import Cell
from storage.database import Database, now
from storage.errors import NotFound
from storage.instances import TRANSITIONAL, Instance

EVERY_S: Final = 5
LOST_AFTER: Final = timedelta(seconds=10)
"""A transitional instance without work is touched only after this time, so that races settle."""
RETRY_AFTER: Final = timedelta(seconds=60)
"""How long a delete or erase that failed rests before it is tried again."""
_log = structlog.get_logger("reconcile")


@workflow("reconcile", deadline_s=120)
def reconcile(op: Operation) -> None:
    with op.database.read() as db:
        known = cells.every(db)
    for cell in known:
        try:
            observe(op, cell)
        except (CellUnavailable, CellRefused) as error:
            _log.warning("cell could not be observed", cell_id=cell.id, error=str(error))
    restart_lost_work(op.database)


def observe(op: Operation, cell: Cell) -> None:
    """Compare one cell's observations with the records, and write what differs."""
    with op.database.read() as db:
        # Read first: a record unchanged since then is older than the observation.
        known = list(_of_cell(db, cell.id))
    mine = [row for row in known if row.status in findings.SETTLED]
    client = op.services.cells.for_cell(cell)
    seen = {each["instance_id"]: each for each in client.observations()}
    access.end_lapsed(op.database, client, known, seen)
    for instance in mine:
        observation = seen.get(instance.id)
        if findings.differs(instance, observation):
            _record(op.database, instance, observation)
    for instance in known:
        reason = (seen.get(instance.id) or {}).get("status_reason")
        if instance.status in TRANSITIONAL and reason not in (None, instance.status_reason):
            _hold_up(op.database, instance, str(reason))
    domains.note_certificates(op.database, cell.id, seen.values())


def _record(database: Database, read: Instance, observation: Answer | None) -> None:
    with database.write() as db:
        instance = instances.fetch(db, read.org_id, read.id, lock=True)
        moved_on = instance.updated_at != read.updated_at or instance.status != read.status
        if not moved_on and not queue.is_open(db, instance.id):
            findings.apply(db, instance, observation, now(db))


def _hold_up(database: Database, read: Instance, reason: str) -> None:
    """A start that takes long says why before it ends."""
    with database.write() as db:
        instance = instances.fetch(db, read.org_id, read.id, lock=True)
        if instance.status == read.status:
            instance.is_held_up(reason)


def restart_lost_work(database: Database) -> None:
    """Start the workflow of every instance that waits for one and has none."""
    with database.read() as db:
        moment = now(db)
        stuck = [(row.org_id, row.id) for row in _stuck(db, moment)]
        untold = [(row.org_id, row.instance_id) for row in networks.untold(db, moment - LOST_AFTER)]
    for org_id, instance_id in untold:
        with database.write() as db:
            _tell_network(db, instances.fetch(db, org_id, instance_id, lock=True))
    for org_id, instance_id in stuck:
        with database.write() as db:
            try:
                instance = instances.fetch(db, org_id, instance_id, lock=True)
            except NotFound:
                continue
            if not queue.is_open(db, instance.id):
                _restart(db, instance)


def _restart(db: Session, instance: Instance) -> None:
    if instance.status == "failed" and instance.desired_status == "deleted":
        instance.delete(instance.purge_after)
    elif instance.status == "failed" and instance.desired_status == "erased":
        instance.erase()
    if instance.status in TRANSITIONAL:
        _log.warning("lost work restarted", instance_id=instance.id, status=instance.status)
        starting.start(db, starting.BY_STATUS[instance.status], instance)


def _tell_network(db: Session, instance: Instance) -> None:
    settled = instance.desired_status not in instances.GONE
    if settled and not queue.is_open(db, instance.id):
        starting.start(db, NETWORK, instance)


def _stuck(db: Session, moment: datetime) -> list[Instance]:
    transitional = select(Instance).where(
        Instance.status.in_(sorted(TRANSITIONAL)), Instance.updated_at < moment - LOST_AFTER
    )
    unfinished = select(Instance).where(
        Instance.status == "failed",
        Instance.desired_status.in_(instances.GONE),
        Instance.updated_at < moment - RETRY_AFTER,
    )
    found: list[Any] = [*db.scalars(transitional), *db.scalars(unfinished)]
    return [row for row in found if not queue.is_open(db, row.id)]


def _of_cell(db: Session, cell_id: str) -> list[Instance]:
    return list(db.scalars(select(Instance).where(Instance.cell_id == cell_id)))


schedule("reconcile", "reconcile", every_s=EVERY_S)
