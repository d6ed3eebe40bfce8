"""Migrations: begun, cut over and cancelled at the cells that run them."""

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.cells.client import CellRefused, CellUnavailable, InstanceUnknown
from control.cells.migrations import CellMigrations
from control.work import GiveUp, Operation, Workflow, enqueue, workflow
from control.workflows.data import migration_progress as progress
from control.workflows.instances.subjects import load
from storage.data import migrations
from storage.data.migrations import Migration
from storage.database import now
from storage.errors import RecordNotFound
from storage.instances import instances
from storage.instances.instances import GONE, Instance

DEADLINE_S: Final = 600
CANCEL_DEADLINE_S: Final = 3600
"""Whoever cancels wants it gone: a cell that is away for a while is waited for."""


def start(
    db: Session, started: Workflow, instance: Instance, migration_id: str, *, after_s: float = 0
) -> None:
    """In the lane of the instance's migrations: they hold up nothing else of it."""
    args = {"org_id": instance.org_id, "instance_id": instance.id, "migration_id": migration_id}
    enqueue(db, started, lane(instance.id), args, after_s=after_s)


def lane(instance_id: str) -> str:
    return f"{instance_id}:migrations"


def beginning_failed(op: Operation, db: Session, reason: str) -> None:
    instance = load(op, db)
    migration = find(db, instance, op)
    if migration is not None and migration.status == "awaiting_source":
        migration.became_failed(reason, now(db))
        progress.tell_end(db, instance, migration)
        # The cell may have heard of it all the same.
        start(db, cancel, instance, migration.id)


@workflow("migrations.begin", deadline_s=DEADLINE_S, on_failure=beginning_failed)
def begin(op: Operation) -> None:
    def begun(db: Session) -> None:
        instance = load(op, db)
        migration = find(db, instance, op)
        if told is not None and migration is not None:
            migration.began(now(db))
            progress.take_over(db, instance, migration, told)

    def ask(cell: CellMigrations, migration: Migration, **stamp: Any) -> Answer | None:
        if migration.status != "awaiting_source":
            return None
        source = {"kind": migration.source_kind, "format": migration.source_format}
        if migration.source_table is not None:
            # Cells of an earlier version know no such member.
            source["table"] = migration.source_table
        wanted = {
            "source": source,
            "mode": migration.mode,
            "dry_run": migration.dry_run,
        }
        return cell.begin(migration.id, wanted, **stamp)

    told = op.step("begin", lambda: _asked(op, "begin", ask))
    op.step_in_transaction("record", begun)


def cutover_failed(op: Operation, db: Session, reason: str) -> None:
    migration = find(db, load(op, db), op)
    if migration is not None:
        migration.cutover_failed(f"the cutover failed: {reason}")


@workflow("migrations.cutover", deadline_s=DEADLINE_S, on_failure=cutover_failed)
def cutover(op: Operation) -> None:
    def ask(cell: CellMigrations, migration: Migration, **stamp: Any) -> Answer | None:
        if migration.status != "cutting_over":
            return None
        return cell.cut_over(migration.id, migration.keep_way_back_s or 0, **stamp)

    told = op.step("cutover", lambda: _asked(op, "cutover", ask))
    op.step_in_transaction("record", lambda db: _record(op, db, told))


@workflow("migrations.cancel", deadline_s=CANCEL_DEADLINE_S, joins=True)
def cancel(op: Operation) -> None:
    """Whatever is left of it at the cell goes; what has ended keeps its status."""

    def ask(cell: CellMigrations, migration: Migration, **stamp: Any) -> Answer:
        try:
            return cell.cancel(migration.id, **stamp)
        except InstanceUnknown:
            # What it never had, or has no more, is as gone as was asked.
            return {}

    def cancelled(db: Session) -> None:
        if told == {}:
            instance = load(op, db)
            progress.is_gone(db, instance, find(db, instance, op))
        else:
            _record(op, db, told)

    told = op.step("cancel", lambda: _asked(op, "cancel", ask))
    op.step_in_transaction("record", cancelled)


def _asked(op: Operation, step: str, ask: Callable[..., Answer | None]) -> Answer | None:
    """What the cell answers; None where there is nobody to ask for any more."""
    with op.database.read() as db:
        instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"])
        migration = find(db, instance, op, lock=False)
        if migration is None or instance.desired_status in GONE:
            return None
        cell = op.services.cells.for_instance(db, instance)
    try:
        stamp: dict[str, Any] = {"key": op.key(step), "lease": op.lease}
        return ask(cell.migrations(instance.id), migration, **stamp)
    except CellUnavailable as error:
        _tell(op, error.detail)
        raise
    except CellRefused as refused:
        raise GiveUp(str(refused)) from refused


def _tell(op: Operation, reason: str) -> None:
    """The owner hears what holds it up, while it is tried again."""
    with op.database.write() as db:
        migration = find(db, load(op, db), op)
        if migration is not None:
            migration.is_held_up(reason)


def _record(op: Operation, db: Session, told: Answer | None) -> None:
    instance = load(op, db)
    migration = find(db, instance, op)
    if told is not None and migration is not None:
        progress.take_over(db, instance, migration, told)


def find(db: Session, instance: Instance, op: Operation, *, lock: bool = True) -> Migration | None:
    """None once it was erased with its instance."""
    try:
        return migrations.fetch(db, instance, op.args["migration_id"], lock=lock)
    except RecordNotFound:
        return None
