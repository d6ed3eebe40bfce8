"""Changes that the cell must make: a backup first, then the new figures, then the record."""

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.cells.client import CellClient
from control.work import Operation, workflow
from control.workflows.data.before_change import before_change, give_up
from control.workflows.instances.lifecycle import put_what_was_kept, usable
from control.workflows.instances.starting import start
from control.workflows.instances.subjects import (
    call,
    load,
    publish,
    publish_failed,
    record,
    size_of,
    specification,
)
from storage.database import now
from storage.instances import changes, instances
from storage.instances.changes import COLUMNS, Change
from storage.instances.instances import Instance

TOUCHES_DATA: Final = frozenset({"size", "storage", "engine_version"})
"""Kinds that a backup goes before."""


def resizing_failed(op: Operation, db: Session, reason: str) -> None:
    instance = load(op, db)
    changes.give_up(db, instance.org_id, instance.id)
    give_up(db, instance, reason)
    if instance.status == "resizing":
        instance.became_running(now(db))
        instance.status_reason = f"the change failed: {reason}"
        publish_failed(db, instance, "resize", reason)
        # The cell may have gone halfway: tell it once more what holds.
        start(db, converge, instance)


@workflow("instances.resize", deadline_s=1800, on_failure=resizing_failed)
def resize(op: Operation) -> None:
    def apply_all(db: Session, instance: Instance) -> None:
        moment = now(db)
        applied = changes.pending(db, instance.org_id, instance.id)
        for change in applied:
            change.apply(instance, moment)
        instance.became_running(moment)
        if applied:
            publish(
                db,
                instance,
                "instance.resized.v1",
                size=instance.size,
                storage_bytes=instance.storage_bytes,
                changes=[{"kind": c.kind, "old": c.old, "new": c.new} for c in applied],
            )

    kinds = set(op.step("plan", lambda: _kinds(op)))
    if kinds & TOUCHES_DATA:
        before_change(op, "resizing")
        call(op, "apply", "resizing", _apply(op, kinds))
        call(op, "usable", "resizing", usable)
    record(op, "resizing", apply_all)


@workflow("instances.converge", deadline_s=600)
def converge(op: Operation) -> None:
    """Declare to the cell what the record holds, after a change that did not succeed."""
    told = call(op, "put", "running", put_what_was_kept(op))
    if told is not None and told["paused_by"] == "request":
        # Closed for a change that was not made.
        call(op, "resume", "running", lambda cell, *to, **stamp: cell.resume(*to, **stamp))


def _kinds(op: Operation) -> list[str]:
    with op.database.read() as db:
        pending = changes.pending(db, op.args["org_id"], op.args["instance_id"])
        return sorted(change.kind for change in pending)


def _apply(op: Operation, kinds: set[str]) -> Callable[..., Answer]:
    """A new engine version needs the whole declaration; size and storage only their figures."""

    def apply(cell: CellClient, instance_id: str, *, key: str, lease: int) -> Answer:
        with op.database.read() as db:
            instance = instances.fetch(db, op.args["org_id"], instance_id)
            pending = changes.pending(db, instance.org_id, instance_id)
            _foresee(instance, pending)
            wanted = specification(db, op.services, instance)
        if "engine_version" in kinds:
            return cell.put(instance_id, wanted, key=key, lease=lease)
        return cell.resize(instance_id, size_of(instance), key=key, lease=lease)

    return apply


def _foresee(instance: Instance, pending: list[Change]) -> None:
    """Set the new values on a record read for reading, which is never written."""
    for change in pending:
        value: Any = change.new
        setattr(instance, COLUMNS[change.kind], value)
