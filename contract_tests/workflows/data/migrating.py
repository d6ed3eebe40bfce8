"""Makes migrations that their cell has under way, as tests need them."""

from typing import Any

from sqlalchemy import update

from contract_tests.workflows import known
from contract_tests.workflows.fake_migrations import FakeMigrations
from contract_tests.workflows.stage import Stage
from control.workflows.data import migrations as acts
from storage.data import migrations
from storage.data.migrations import Migration
from storage.database import now
from storage.instances import instances
from storage.instances.instances import Instance


def into(stage: Stage, instance: Instance, status: str = "awaiting_source") -> Migration:
    """One in this status, here and at its cell; of which that knows nothing yet: `""`."""
    with stage.database.write() as db:
        row = instances.fetch(db, stage.org_id, instance.id)
        made = migrations.request(
            *(db, row),
            source={"kind": "connection"},
            mode="copy_and_sync",
            dry_run=False,
            requested_by=None,
        )
        # By the stage's clock, which tests move on.
        made.created_at = now(db)
        if status:
            made.status, made.started_at = status, now(db)
    if status:
        wanted = {
            "source": {"kind": "connection", "format": None},
            "mode": "copy_and_sync",
            "dry_run": False,
        }
        cell = of(stage, made)
        cell.begin(made.id, wanted, key=f"before-{made.id}:begin", lease=1)
        cell.becomes(made.id, status=status)
    return made


def of(stage: Stage, migration: Migration) -> FakeMigrations:
    return stage.cell.migrations(migration.instance_id)


def becomes(stage: Stage, migration: Migration, **told: Any) -> None:
    """Something happens in the cell, and the control plane looks at it."""
    of(stage, migration).becomes(migration.id, **told)
    watch(stage)


def watch(stage: Stage) -> None:
    with stage.database.write() as db:
        known.take_turn(db, "migrations.watch")
    stage.settle()


def ask(stage: Stage, migration: Migration, kind: str) -> None:
    """As a handler does: the record first, and then the work."""
    with stage.database.write() as db:
        instance = instances.fetch(db, stage.org_id, migration.instance_id, lock=True)
        row = migrations.fetch(db, instance, migration.id, lock=True)
        if kind == "migrations.cancel":
            row.cancel()
        elif kind == "migrations.cutover":
            row.cut_over(60, now(db))
        elif kind == "migrations.watch":
            known.take_turn(db, kind)
            return
        acts.start(db, stage.registry.workflows[kind], instance, row.id)


def fetch(stage: Stage, migration: Migration) -> Migration:
    with stage.database.read() as db:
        instance = instances.fetch(db, stage.org_id, migration.instance_id)
        return migrations.fetch(db, instance, migration.id)


def end_all(stage: Stage) -> None:
    """Else whoever watches them has more to do each time."""
    with stage.database.write() as db:
        db.execute(update(Migration).values(status="cancelled"))
