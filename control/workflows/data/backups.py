"""Backups: made by cells into the store, and removed from it."""

from datetime import timedelta
from typing import Any, Final

from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.cells.client import CellUnavailable, InstanceUnknown
from control.work import GiveUp, Operation, Workflow, enqueue, workflow
from control.workflows.data.before_change import back_up, failed, find, record
from control.workflows.instances.subjects import load
from storage.data import backups
from storage.database import now
from storage.instances import instances
from storage.instances.instances import GONE, Instance

DEADLINE_S: Final = 8 * 3600
"""Of what copies all data of an instance: longer than a cell works at it, and waits for others."""
FAILED_REST: Final = timedelta(seconds=DEADLINE_S + 3600)
"""Until then a cell may still be at a backup that was given up."""
DROPPED_AT_ONCE: Final = 100


def start(db: Session, started: Workflow, instance: Instance, **args: Any) -> None:
    """In lanes beside the instance's own: a copy that takes long holds up no request of it."""
    subject = {"org_id": instance.org_id, "instance_id": instance.id}
    enqueue(db, started, lane(started, instance.id), {**subject, **args})


def lane(started: Workflow, instance_id: str) -> str:
    return f"{started.kind}:{instance_id}"


def creating_failed(op: Operation, db: Session, reason: str) -> None:
    instance = load(op, db)
    backup = find(db, instance, op.args["backup_id"])
    if backup is not None and backup.status in backups.OPEN_STATUSES:
        failed(db, instance, backup, reason)


@workflow("backups.create", deadline_s=DEADLINE_S, on_failure=creating_failed)
def create(op: Operation) -> None:
    backup_id = op.args["backup_id"]

    def begin(db: Session) -> str | None:
        instance = load(op, db)
        backup = find(db, instance, backup_id)
        if backup is None or backup.status not in backups.OPEN_STATUSES:
            return None
        backup.begin()
        return backup.kind

    kind = op.step_in_transaction("begin", begin)
    if kind is None:
        return
    told = op.step("copy", lambda: _copy(op, backup_id, kind))
    op.step_in_transaction("record", lambda db: record(op, db, backup_id, told))


def _copy(op: Operation, backup_id: str, kind: str) -> Answer:
    with op.database.read() as db:
        instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"])
        if instance.desired_status in GONE:
            raise GiveUp(f"the instance is {instance.status}")
        cell = op.services.cells.for_instance(db, instance)
    try:
        return back_up(op, backup_id, kind)(cell, instance.id, key=op.key("copy"), lease=op.lease)
    except CellUnavailable as error:
        _tell(op, backup_id, error.detail)
        raise


def _tell(op: Operation, backup_id: str, reason: str) -> None:
    """The owner hears what holds it up, while it is tried again."""
    with op.database.write() as db:
        backup = find(db, load(op, db), backup_id)
        if backup is not None:
            backup.is_held_up(reason)


@workflow("backups.drop", deadline_s=3600, joins=True)
def drop(op: Operation) -> None:
    """Remove from the store what is not wanted there any more; as much as a cell takes at once."""

    def dropped(db: Session) -> None:
        instance, moment = load(op, db), now(db)
        # Not what something builds on that only the cell knows of; it is tried again.
        gone = set(ids).intersection(told.get("dropped", ids))
        for backup in backups.by_ids(db, instance, gone):
            backup.became_dropped(moment)
        db.flush()
        if gone and _to_drop(db, instance):
            start(db, drop, instance)

    ids = op.step("choose", lambda: _chosen(op))
    if ids:
        told = op.step("drop", lambda: _drop(op, ids))
        op.step_in_transaction("record", dropped)


def _chosen(op: Operation) -> list[str]:
    with op.database.read() as db:
        return _to_drop(db, instances.fetch(db, op.args["org_id"], op.args["instance_id"]))


def _to_drop(db: Session, instance: Instance) -> list[str]:
    return backups.to_drop(db, instance, now(db) - FAILED_REST, DROPPED_AT_ONCE)


def _drop(op: Operation, ids: list[str]) -> Answer:
    with op.database.read() as db:
        instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"])
        cell = op.services.cells.for_instance(db, instance)
    try:
        return cell.drop_backups(instance.id, ids, key=op.key("drop"), lease=op.lease)
    except InstanceUnknown:
        # What it never had, or has no more, is as gone as was asked.
        return {}
