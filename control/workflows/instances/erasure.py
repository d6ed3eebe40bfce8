"""Delete and erase: the cell stops an instance and keeps its data, or destroys it."""

from collections.abc import Callable

from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.cells.client import CellClient, InstanceUnknown
from control.work import Operation, workflow
from control.workflows.data import migration_progress
from control.workflows.instances.subjects import (
    call,
    load,
    publish,
    publish_failed,
    record,
    rfc3339,
)
from storage.data import (
    backup_copies,
    backup_settings,
    backups,
    migrations,
    recovery_windows,
    restores,
)
from storage.events import alerts
from storage.instances import changes, readings
from storage.instances.instances import Instance


def deleting_failed(op: Operation, db: Session, reason: str) -> None:
    _failed(op, db, reason, status="deleting", operation="delete")


def erasing_failed(op: Operation, db: Session, reason: str) -> None:
    _failed(op, db, reason, status="erasing", operation="erase")


@workflow("instances.delete", deadline_s=600, on_failure=deleting_failed)
def delete(op: Operation) -> None:
    def deleted(db: Session, instance: Instance) -> None:
        instance.became_deleted()
        changes.give_up(db, instance.org_id, instance.id)
        migration_progress.end_with_instance(db, instance)
        kept_until = instance.purge_after
        publish(
            db,
            instance,
            "instance.deleted.v1",
            erased=False,
            purge_after=rfc3339(kept_until) if kept_until else None,
        )

    call(
        op,
        "delete",
        "deleting",
        _unless_unknown(lambda cell, *to, **stamp: cell.delete(*to, **stamp)),
    )
    record(op, "deleting", deleted)


@workflow("instances.erase", deadline_s=600, on_failure=erasing_failed)
def erase(op: Operation) -> None:
    def erased(db: Session, instance: Instance) -> None:
        instance.became_erased()
        changes.give_up(db, instance.org_id, instance.id)
        # The cell has erased what they tell of.
        migration_progress.end_with_instance(db, instance)
        migrations.forget(db, instance)
        restores.forget(db, instance)
        backups.forget(db, instance)
        backup_settings.forget(db, instance)
        recovery_windows.forget(db, instance)
        backup_copies.forget(db, instance)
        readings.forget(db, instance)
        alerts.forget(db, instance)
        publish(db, instance, "instance.deleted.v1", erased=True, purge_after=None)

    call(
        op, "erase", "erasing", _unless_unknown(lambda cell, *to, **stamp: cell.erase(*to, **stamp))
    )
    record(op, "erasing", erased)


def _unless_unknown(act: Callable[..., Answer]) -> Callable[..., Answer]:
    """An instance that the cell never had, or has no more, is as gone as was asked."""

    def go(cell: CellClient, instance_id: str, *, key: str, lease: int) -> Answer:
        try:
            return act(cell, instance_id, key=key, lease=lease)
        except InstanceUnknown:
            return {}

    return go


def _failed(op: Operation, db: Session, reason: str, *, status: str, operation: str) -> None:
    """It stays wanted gone: the reconciler tries again, and its owner sees why it lasts."""
    instance = load(op, db)
    if instance.status == status:
        instance.became_failed(f"the {operation} failed and will be tried again: {reason}")
        publish_failed(db, instance, operation, reason)
