"""Resume and undelete: an instance runs again, with the data that its cell kept, or a backup."""

from typing import Final

from sqlalchemy.orm import Session

from control.cells.client import CellUnavailable
from control.work import GiveUp, Operation, workflow
from control.workflows.data.backups import DEADLINE_S
from control.workflows.data.before_change import patiently
from control.workflows.instances.lifecycle import put, put_what_was_kept, usable
from control.workflows.instances.starting import start
from control.workflows.instances.subjects import (
    call,
    load,
    publish,
    publish_failed,
    record,
    tell,
)
from storage.data import backups
from storage.data.backups import Backup
from storage.database import now
from storage.instances import instances
from storage.instances.instances import Instance

NONE: Final = "the cell no longer has its data, and there is no backup of it that could be restored"


def resuming_failed(op: Operation, db: Session, reason: str) -> None:
    instance = load(op, db)
    if instance.status == "resuming":
        instance.became_paused(instance.paused_by or "user")
        instance.status_reason = f"resuming failed: {reason}"
        publish_failed(db, instance, "resume", reason)


@workflow("instances.resume", deadline_s=300, on_failure=resuming_failed)
def resume(op: Operation) -> None:
    """Also of what is undeleted, which its cell is told of anew; that may have been paused."""

    def resumed(db: Session, instance: Instance) -> None:
        _resumed(db, instance, wanted)

    wanted = op.step("wanted", lambda: _wanted(op))
    lost = op.step("look", lambda: _is_lost(op))
    if lost:
        # Takes longer than there is time here.
        op.step_in_transaction("hand_over", lambda db: _hand_over(op, db))
        return
    call(op, "put", "resuming", put_what_was_kept(op))
    if wanted != "paused":
        call(op, "resume", "resuming", lambda cell, *to, **stamp: cell.resume(*to, **stamp))
        call(op, "usable", "resuming", usable)
    record(op, "resuming", resumed)


@workflow("instances.bring_back", deadline_s=DEADLINE_S, on_failure=resuming_failed)
def bring_back(op: Operation) -> None:
    """What its cell has lost, with the data of a backup."""

    def returned(db: Session, instance: Instance) -> None:
        backup = backups.fetch(db, instance, backup_id)
        _resumed(db, instance, wanted)
        if observed is not None:
            # The former ones were lost with the data.
            instance.credentials_generation = observed["credentials"]["generation"]
            instance.credentials_overlap_until = None
        of = (backup.started_at or now(db)).isoformat(timespec="seconds")
        instance.status_reason = (
            f"its cell had lost its data: it has that of {of}, from the backup {backup_id}, and a"
            " new credential"
        )

    backup_id = op.args["backup_id"]
    wanted = op.step("wanted", lambda: _wanted(op))
    source = f"{op.args['instance_id']}/{backup_id}"
    observed = call(op, "put", "resuming", patiently(op, put(op, source_backup=source)))
    call(op, "resume", "resuming", lambda cell, *to, **stamp: cell.resume(*to, **stamp))
    observed = call(op, "usable", "resuming", usable) or observed
    if wanted == "paused":
        call(op, "pause", "resuming", lambda cell, *to, **stamp: cell.pause(*to, **stamp))
    record(op, "resuming", returned)


def _resumed(db: Session, instance: Instance, wanted: str) -> None:
    if wanted == "paused":
        instance.became_paused("user")
        publish(db, instance, "instance.paused.v1", paused_by="user")
    else:
        instance.became_running(now(db))
        publish(db, instance, "instance.resumed.v1", resumed_by="user")


def _wanted(op: Operation) -> str:
    with op.database.read() as db:
        return instances.fetch(db, op.args["org_id"], op.args["instance_id"]).desired_status


def _is_lost(op: Operation) -> bool:
    """Also with the cell's machine. What was erased at the cell is not: its backups are, too."""
    with op.database.read() as db:
        instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"])
        cell = op.services.cells.for_instance(db, instance)
    try:
        observation = cell.observe(instance.id)
    except CellUnavailable as error:
        tell(op, "resuming", error.detail)
        raise
    return observation is None or bool(observation.get("data_lost"))


def _hand_over(op: Operation, db: Session) -> None:
    instance = load(op, db)
    if instance.status != "resuming":
        return
    backup = _newest(db, instance)
    if backup is None:
        raise GiveUp(NONE)
    start(db, bring_back, instance, backup_id=backup.id)


def _newest(db: Session, instance: Instance) -> Backup | None:
    """Of the version that the instance has: a backup is not brought to another."""
    found = backups.completed(db, instance)
    fit = [each for each in found if each.engine_version == instance.engine_version]
    return fit[-1] if fit else None
