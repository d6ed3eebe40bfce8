"""Recovery: an instance whose data was lost gets that of its newest backup in the store."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.cells.client import CellClient
from control.work import GiveUp, Operation, workflow
from control.workflows.data.backups import DEADLINE_S
from control.workflows.data.before_change import find, patiently
from control.workflows.data.restores import completed
from control.workflows.instances.lifecycle import put, usable
from control.workflows.instances.starting import start
from control.workflows.instances.subjects import call, load, publish, publish_failed, rfc3339
from storage.data import backups, restores
from storage.data.backups import Backup
from storage.database import now
from storage.errors import StateConflict
from storage.instances import instances
from storage.instances.instances import GONE, Instance

LOST: Final = "the data was lost with its machine"
"""How the reason of whatever is or was to be recovered begins."""
NO_BACKUP: Final = (
    "there is no backup of it in the store; delete the instance, or erase it, and create another"
)
LOOK_AGAIN: Final = timedelta(minutes=10)
"""What had no backup is looked for again then: the store may have been another one."""
_KNOWN_MAX: Final = 1000


def is_due(instance: Instance, observation: Answer | None, moment: datetime) -> bool:
    """Whether the data is not where the record says, and nobody is bringing it back yet."""
    if instance.desired_status in GONE:
        return False
    if observation is None:
        return instance.status != "failed" and instance.ready_at is not None
    if not observation.get("data_lost"):
        return False
    return not _is_given_up(instance) or instance.updated_at < moment - LOOK_AGAIN


def _is_given_up(instance: Instance) -> bool:
    return instance.status == "failed" and (instance.status_reason or "").startswith(LOST)


def begin(db: Session, instance: Instance) -> None:
    """One that was given up stays so until a backup is found."""
    if _is_given_up(instance):
        instance.updated_at = now(db)
    else:
        instance.recover(f"{LOST}; looking for its newest backup")
    start(db, recover, instance)


def recovering_failed(op: Operation, db: Session, reason: str) -> None:
    instance = load(op, db)
    restore = restores.into(db, instance, "in_place")
    if restore is not None:
        restore.became_failed(reason, now(db))
    if instance.status == "restoring":
        instance.became_failed(f"{LOST}: {reason}")
        publish_failed(db, instance, "restore", reason)


@workflow("restores.recover", deadline_s=DEADLINE_S, on_failure=recovering_failed)
def recover(op: Operation) -> None:
    """Whatever the cell or the database know of the instance: what counts is what is there."""

    def recovered(db: Session) -> None:
        instance = load(op, db)
        if instance.status == "restoring":
            _recovered(db, instance, observed)
        elif (restore := restores.into(db, instance, "in_place")) is not None:
            restore.became_failed(f"the instance is {instance.status}", now(db))

    status = op.step_in_transaction("begin", lambda db: load(op, db).status)
    told = call(op, "find", status, _take_over(op))
    backup_id = op.step_in_transaction("choose", lambda db: _choose(db, load(op, db), told))
    if backup_id is None:
        return
    source = f"{op.args['instance_id']}/{backup_id}"
    call(op, "put", "restoring", patiently(op, put(op, source_backup=source)))
    # One that was paused begins with its data, too, and does not wait for somebody to resume it.
    call(op, "start", "restoring", lambda cell, *to, **stamp: cell.resume(*to, **stamp))
    observed = call(op, "usable", "restoring", usable)
    call(op, "pause", "restoring", _pause(op))
    op.step_in_transaction("record", recovered)


def _take_over(op: Operation) -> Callable[..., Answer]:
    def ask(cell: CellClient, instance_id: str, *, key: str, lease: int) -> Answer:
        with op.database.read() as db:
            instance = instances.fetch(db, op.args["org_id"], instance_id)
            completed = backups.completed(db, instance)
        known = [each.sha256 for each in completed if each.sha256 is not None]
        return cell.take_over_backups(instance_id, known[-_KNOWN_MAX:], key=key, lease=lease)

    return ask


def _choose(db: Session, instance: Instance, told: Answer | None) -> str | None:
    """The newest backup, whether it was known or not; None where nothing is to be done."""
    if told is None:
        return None
    found = [_known(db, instance, each) for each in told["items"]]
    stored = [each for each in found if each.status == "completed" and each.started_at is not None]
    if not stored:
        if instance.status == "failed":
            return None
        raise GiveUp(NO_BACKUP)
    newest = max(stored, key=lambda each: (each.started_at, each.id))
    if instance.status == "failed":
        instance.recover(LOST)
    assert newest.started_at is not None
    instance.status_reason = f"{LOST}; restoring backup {newest.id} of {rfc3339(newest.started_at)}"
    instance.engine_version = newest.engine_version
    restore = restores.request(db, newest, instance, "in_place", None)
    restore.begin(now(db))
    return newest.id


def _known(db: Session, instance: Instance, told: Answer) -> Backup:
    """Its record, made or completed where this database is older than the backup."""
    backup = find(db, instance, told["backup_id"])
    if backup is None:
        try:
            return backups.take_over(db, instance, told)
        except StateConflict as error:
            raise GiveUp(error.detail) from error
    if backup.status in backups.OPEN_STATUSES:
        backup.became_completed(told)
    return backup


def _pause(op: Operation) -> Callable[..., Answer]:
    """What somebody had paused. One that was idle falls asleep again by itself."""

    def ask(cell: CellClient, instance_id: str, *, key: str, lease: int) -> Answer:
        with op.database.read() as db:
            instance = instances.fetch(db, op.args["org_id"], instance_id)
        if not _is_to_pause(instance):
            return {}
        return cell.pause(instance_id, key=key, lease=lease)

    return ask


def _is_to_pause(instance: Instance) -> bool:
    return instance.desired_status == "paused" and instance.paused_by == "user"


def _recovered(db: Session, instance: Instance, observed: Answer | None) -> None:
    """Its owner hears of it, and of the new credential."""
    assert observed is not None
    if _is_to_pause(instance):
        instance.ready_at = instance.ready_at or now(db)
        instance.became_paused("user")
    else:
        instance.became_running(now(db))
    instance.port = observed.get("port") or instance.port
    generation = int(observed["credentials"]["generation"])
    # The reconciler may have told of it. The first one of a cell that knew none is new as well.
    if generation != instance.credentials_generation or generation == 1:
        for phase in ("started", "completed"):
            told = {"phase": phase, "generation": generation, "overlap_until": None}
            publish(db, instance, "instance.credentials.rotated.v1", **told)
    instance.credentials_generation, instance.credentials_overlap_until = generation, None
    completed(db, instance, "in_place", observed)
