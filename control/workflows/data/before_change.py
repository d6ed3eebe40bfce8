"""The backup before a change: of the data as it is, in the store before anything happens to it."""

from collections.abc import Callable
from typing import Final

from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.cells.client import CellClient, CellFailed
from control.work import GiveUp, Operation
from control.workflows.instances.subjects import call, load, publish
from storage.data import backups
from storage.data.backups import Backup
from storage.errors import RecordNotFound
from storage.instances.instances import Instance

TRIES: Final = 8
"""How often a cell that tried and could not is asked again, in about a minute."""


def before_change(
    op: Operation, status: str, begun: Callable[[Session, Backup], None] | None = None
) -> None:
    """Steps of a workflow: back up the instance, as long as it is in `status`.

    `begun` is called in the transaction that records the backup. Raises GiveUp where it cannot be
    made: then nothing may be changed.
    """

    def protect(db: Session) -> str | None:
        instance = load(op, db)
        if instance.status != status:
            return None
        backup = backups.request(db, instance, "pre_change")
        backup.begin()
        if begun is not None:
            begun(db, backup)
        return backup.id

    backup_id = op.step_in_transaction("protect", protect)
    if backup_id is None:
        return
    told = call(op, "back_up", status, back_up(op, backup_id, "pre_change"))
    op.step_in_transaction("backed_up", lambda db: record(op, db, backup_id, told))


def back_up(op: Operation, backup_id: str, kind: str) -> Callable[..., Answer]:
    return patiently(
        op,
        lambda cell, instance_id, **stamp: cell.back_up(instance_id, backup_id, kind, **stamp),
    )


def patiently(op: Operation, act: Callable[..., Answer]) -> Callable[..., Answer]:
    """The act, given up once the cell has failed at it so often; its owner hears why."""

    def try_it(cell: CellClient, instance_id: str, *, key: str, lease: int) -> Answer:
        try:
            return act(cell, instance_id, key=key, lease=lease)
        except CellFailed as error:
            if op.attempts >= TRIES:
                raise GiveUp(error.detail) from error
            raise

    return try_it


def record(op: Operation, db: Session, backup_id: str, told: Answer | None) -> None:
    """What became of a backup, and the event of it. `told` is what the cell says; None: nothing."""
    instance = load(op, db)
    backup = find(db, instance, backup_id)
    if backup is None or backup.status not in backups.OPEN_STATUSES:
        return
    if told is None:
        failed(db, instance, backup, f"the instance is {instance.status}")
        return
    backup.became_completed(told)
    publish(
        db,
        instance,
        "backup.completed.v1",
        backup_id=backup.id,
        kind=backup.kind,
        size_bytes=told["size_bytes"],
        stored_bytes=told["stored_bytes"],
        verified_by=told["verification"]["method"],
    )


def failed(db: Session, instance: Instance, backup: Backup, reason: str) -> None:
    """With the event that tells of it."""
    backup.became_failed(reason)
    about = {"backup_id": backup.id, "kind": backup.kind}
    publish(db, instance, "backup.failed.v1", **about, reason=reason)


def give_up(db: Session, instance: Instance, reason: str) -> None:
    """What was to be made before a change is not, as the change is not."""
    backup = backups.first_open(db, instance, "pre_change")
    if backup is not None:
        failed(db, instance, backup, reason)


def find(db: Session, instance: Instance, backup_id: str) -> Backup | None:
    """None once it was erased with its instance."""
    try:
        return backups.fetch(db, instance, backup_id, lock=True)
    except RecordNotFound:
        return None
