"""Restores: a backup becomes the data of a new instance, or again that of its own."""

from typing import Final

from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.cells.client import CellClient
from control.work import GiveUp, Operation, workflow
from control.workflows.data.backups import DEADLINE_S
from control.workflows.data.before_change import before_change, give_up, patiently
from control.workflows.instances.lifecycle import became_ready, put, usable
from control.workflows.instances.resizing import converge
from control.workflows.instances.starting import start
from control.workflows.instances.subjects import call, load, publish, publish_failed, rfc3339
from storage.data import restores
from storage.data.backups import Backup
from storage.data.restores import Restore
from storage.database import now
from storage.instances.instances import Instance

GONE: Final = "the backup is gone: its instance was erased"


def new_instance_failed(op: Operation, db: Session, reason: str) -> None:
    instance = load(op, db)
    restore = restores.into(db, instance, "new_instance")
    if restore is not None:
        restore.became_failed(reason, now(db))
    if instance.status in {"requested", "provisioning"}:
        instance.became_failed(f"provisioning failed: {reason}")
        publish_failed(db, instance, "provision", reason)


@workflow("restores.new_instance", deadline_s=DEADLINE_S, on_failure=new_instance_failed)
def new_instance(op: Operation) -> None:
    """Provision it as any other, with the data of a backup."""

    def begin(db: Session) -> dict[str, str | None] | None:
        instance = load(op, db)
        if instance.status == "requested":
            instance.provisioning()
        restore = _begun(db, instance, "new_instance")
        if restore is None:
            return None
        source = f"{restore.instance_id}/{restore.backup_id}"
        return {"source_backup": source, "source_at": _moment(restore)}

    def ready(db: Session) -> None:
        instance = load(op, db)
        if instance.status == "provisioning":
            became_ready(db, instance, observed)
            completed(db, instance, "new_instance", observed)
        else:
            _left(db, instance, "new_instance")

    source = op.step_in_transaction("begin", begin)
    if source is None:
        raise GiveUp(GONE)
    call(op, "put", "provisioning", patiently(op, put(op, **source)))
    observed = call(op, "usable", "provisioning", usable)
    op.step_in_transaction("record", ready)


def in_place_failed(op: Operation, db: Session, reason: str) -> None:
    instance = load(op, db)
    give_up(db, instance, reason)
    restore = restores.into(db, instance, "in_place")
    if restore is not None:
        restore.became_failed(reason, now(db))
    if instance.status == "restoring":
        # The cell has put the former data back; `converge` lets clients in again.
        instance.became_running(now(db))
        instance.status_reason = f"the restore failed: {reason}"
        publish_failed(db, instance, "restore", reason)
        start(db, converge, instance)


@workflow("restores.in_place", deadline_s=DEADLINE_S, on_failure=in_place_failed)
def in_place(op: Operation) -> None:
    """Back up what there is, replace it, and let clients in again."""

    def begin(db: Session) -> dict[str, str | None] | None:
        restore = _begun(db, load(op, db), "in_place")
        if restore is None:
            return None
        return {"backup_id": restore.backup_id, "at": _moment(restore)}

    def protected(db: Session, backup: Backup) -> None:
        restore = restores.into(db, load(op, db), "in_place")
        if restore is not None:
            restore.pre_change_backup_id = backup.id

    def restored(db: Session) -> None:
        instance = load(op, db)
        if instance.status == "restoring":
            instance.became_running(now(db))
            completed(db, instance, "in_place", observed)
        else:
            _left(db, instance, "in_place")

    source = op.step_in_transaction("begin", begin)
    if source is None:
        raise GiveUp(GONE)
    # What is written after the present data was backed up would be in neither.
    call(op, "close", "restoring", _close)
    before_change(op, "restoring", protected)

    def replace(cell: CellClient, instance_id: str, *, key: str, lease: int) -> Answer:
        return cell.restore(instance_id, **source, key=key, lease=lease)

    call(op, "restore", "restoring", patiently(op, replace))
    call(op, "open", "restoring", lambda cell, *to, **stamp: cell.resume(*to, **stamp))
    observed = call(op, "usable", "restoring", usable)
    op.step_in_transaction("record", restored)


def _close(cell: CellClient, instance_id: str, *, key: str, lease: int) -> Answer:
    """Nobody is let in, until it is resumed. Nor is anybody where it failed, which is to be told.

    What cannot start is backed up all the same.
    """
    observed = cell.observe(instance_id)
    if observed is not None and observed["status"] == "failed":
        return observed
    return cell.pause(instance_id, key=key, lease=lease)


def _moment(restore: Restore) -> str | None:
    return None if restore.at is None else rfc3339(restore.at)


def _begun(db: Session, instance: Instance, mode: str) -> Restore | None:
    restore = restores.into(db, instance, mode)
    if restore is not None:
        restore.begin(now(db))
    return restore


def completed(db: Session, instance: Instance, mode: str, observed: Answer | None) -> None:
    """The one under way of that mode, if there is any; and it is told.

    `observed` is the instance as its cell shows it, which says where its data came from.
    """
    restore = restores.into(db, instance, mode)
    if restore is None:
        return
    # A cell of an earlier version does not say.
    told = (observed or {}).get("restored") or {}
    from_copy = told["from_copy"] if told.get("backup_id") == restore.backup_id else None
    restore.became_completed(now(db), from_copy=from_copy)
    publish(
        db,
        instance,
        "restore.completed.v1",
        restore_id=restore.id,
        backup_id=restore.backup_id,
        at=_moment(restore),
        mode=mode,
        target_instance_id=instance.id,
    )


def _left(db: Session, instance: Instance, mode: str) -> None:
    """What was asked later, such as a delete, ended it."""
    restore = restores.into(db, instance, mode)
    if restore is not None:
        restore.became_failed(f"the instance is {instance.status}", now(db))
