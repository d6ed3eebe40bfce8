"""What cells say of migrations, as records keep it and as events tell of it."""

from collections import Counter
from datetime import datetime
from typing import Any, Final

from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.policy import migrations as rules
from control.workflows.instances.subjects import publish, rfc3339
from storage.data import migrations
from storage.data.migrations import Migration
from storage.database import now
from storage.instances.instances import Instance

LOST: Final = "the cell of the instance no longer knows of the migration"
DELETED: Final = "its instance was deleted"
NO_REASON: Final = "its cell does not say why"
_SEVERITIES: Final = ("info", "warning", "blocking")
_SOURCE: Final = ("engine", "version", "size_bytes")
_FINDING: Final = ("severity", "code", "object", "message", "remedy")
_DIFFERENCE: Final = ("object", "source", "target")
_FIGURES: Final = (
    *("bytes_done", "bytes_total", "rows_done", "tables_done", "tables_total"),
    *("lag_bytes", "lag_s", "estimated_s"),
)


def take_over(db: Session, instance: Instance, migration: Migration, told: Answer) -> None:
    """Write what the cell says, and tell of what is new in it."""
    at = now(db)
    said = _kept(told, at)
    if not migration.is_open:
        migration.was_observed(said, at)
        return
    before = migration.status
    checked, verified = migration.preflight is None, migration.verification is None
    migration.was_observed(said, at)
    if checked and migration.preflight is not None:
        _tell_preflight(db, instance, migration)
    if migration.is_open:
        _tell_progress(db, instance, migration, moved=migration.status != before)
    if verified and migration.verification is not None:
        _tell_verified(db, instance, migration)
    tell_end(db, instance, migration)


def _kept(told: Answer, at: datetime) -> Answer:
    """Of what a cell says only what is described, with moments as we write them."""
    said = dict(told)
    if found := told["preflight"]:
        findings = [{name: one[name] for name in _FINDING} for one in found["findings"]]
        source = {name: found["source"][name] for name in _SOURCE}
        checked_at = _moment(found["checked_at"]) or rfc3339(at)
        said["preflight"] = {"checked_at": checked_at, "source": source, "findings": findings}
    if found := told["progress"]:
        said["progress"] = {name: found[name] for name in _FIGURES}
        said["progress"]["updated_at"] = _moment(found["updated_at"])
    if found := told["verification"]:
        differences = [{name: one[name] for name in _DIFFERENCE} for one in found["differences"]]
        said["verification"] = {
            "verified_at": _moment(found["verified_at"]) or rfc3339(at),
            "tables_compared": found["tables_compared"],
            "rows_compared": found["rows_compared"],
            "differences": differences,
            "notes": list(found.get("notes", ())),
        }
    return said


def _moment(told: str | None) -> str | None:
    return None if told is None else rfc3339(datetime.fromisoformat(told))


def is_gone(db: Session, instance: Instance, migration: Migration | None) -> None:
    """The cell has nothing of it: it was cancelled, or is lost."""
    if migration is None:
        return
    if migration.way_back_until is not None:
        migration.way_back_until, migration.status_reason = None, LOST
    if not migration.is_open:
        return
    if migration.status == "cancelling":
        migration.became_cancelled(None, now(db))
    else:
        migration.became_failed(LOST, now(db))
    tell_end(db, instance, migration)


def end_with_instance(db: Session, instance: Instance) -> None:
    """The cell has ended it with the instance."""
    migration = migrations.unfinished(db, instance, lock=True)
    if migration is not None:
        migration.became_cancelled(DELETED, now(db))
        tell_end(db, instance, migration)
    if (kept := migrations.way_back(db, instance, lock=True)) is not None:
        kept.way_back_until, kept.status_reason = None, DELETED


def tell_end(db: Session, instance: Instance, migration: Migration) -> None:
    """Of one that has ended now; in the transaction that ended it."""
    if migration.status == "completed":
        until = migration.way_back_until
        _publish(
            *(db, instance, migration, "migration.completed.v1"),
            dry_run=migration.dry_run,
            way_back_until=None if until is None else rfc3339(until),
        )
    elif not migration.is_open:
        reason = migration.status_reason or _why(migration)
        _publish(
            *(db, instance, migration, "migration.failed.v1"),
            status=migration.status,
            reason=reason,
        )


def _why(migration: Migration) -> str:
    return "it was cancelled by request" if migration.status == "cancelled" else NO_REASON


def _tell_preflight(db: Session, instance: Instance, migration: Migration) -> None:
    report = migration.preflight or {}
    counted = Counter(one["severity"] for one in report["findings"])
    _publish(
        *(db, instance, migration, "migration.preflight.v1"),
        dry_run=migration.dry_run,
        source=report["source"],
        **{severity: counted[severity] for severity in _SEVERITIES},
    )


def _tell_progress(db: Session, instance: Instance, migration: Migration, *, moved: bool) -> None:
    if migration.progress is None:
        return
    at, done = now(db), rules.percent(migration.progress)
    told = migration.told_at, migration.told_percent
    if moved or rules.is_told(migration.status, at, done, *told):
        migration.told_at, migration.told_percent = at, done
        _publish(
            *(db, instance, migration, "migration.progress.v1"),
            status=migration.status,
            percent=done,
            progress=migration.progress,
        )


def _tell_verified(db: Session, instance: Instance, migration: Migration) -> None:
    found = migration.verification or {}
    _publish(
        *(db, instance, migration, "migration.verified.v1"),
        tables_compared=found["tables_compared"],
        rows_compared=found["rows_compared"],
        differences=len(found["differences"]),
    )


def _publish(
    db: Session, instance: Instance, migration: Migration, kind: str, /, **data: Any
) -> None:
    publish(db, instance, kind, migration_id=migration.id, **data)
