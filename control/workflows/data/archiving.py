"""Continuous archiving: cells are told of which instances, and what they tell of it is kept."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.events import resolve
from control.policy import recovery as rules
from control.policy.plans import PLANS
from control.work import Operation, workflow
from control.workflows.instances.fault_isolation import isolated
from control.workflows.instances.subjects import publish
from storage.access import organizations
from storage.data import backup_settings, recovery_windows
from storage.data.recovery_windows import RecoveryWindow
from storage.database import Database, now
from storage.instances import instances
from storage.instances.instances import GONE, Instance

NOTED_EVERY: Final = timedelta(seconds=60)
"""Where nothing changes but that more was archived."""


@workflow("archiving.tell", deadline_s=600, joins=True)
def tell(op: Operation) -> None:
    """The cell whether the WAL of the instance is to be archived."""
    op.step("tell", lambda: _tell(op))


def _tell(op: Operation) -> Answer:
    with op.database.read() as db:
        instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"])
        if instance.desired_status in GONE:
            return {}
        wanted = is_wanted(db, instance)
        cell = op.services.cells.for_instance(db, instance)
    return cell.set_archiving(instance.id, wanted=wanted, key=op.key("tell"), lease=op.lease)


def is_wanted(db: Session, instance: Instance) -> bool:
    plan = PLANS[organizations.fetch(db, instance.org_id).plan]
    chosen = backup_settings.of_instance(db, instance).continuous_archiving
    return rules.is_archived(plan, instance.engine, chosen)


def note(
    database: Database, cell_id: str, known: Iterable[Instance], seen: Mapping[str, Answer]
) -> None:
    """What a cell tells of its instances, with the events of what changed."""
    with database.read() as db:
        windows, moment = recovery_windows.of_cell(db, cell_id), now(db)
    for instance in known:
        told = (seen.get(instance.id) or {}).get("archiving")
        if told is not None and _differs(windows.get(instance.id), told, moment):
            with isolated(instance.id), database.write() as db:
                _note(db, instances.fetch(db, instance.org_id, instance.id, lock=True), told)


def _differs(window: RecoveryWindow | None, told: Mapping[str, Any], moment: datetime) -> bool:
    if window is None:
        return told["status"] != "off" or bool(told["ranges"])
    if window.seen_at is None or window.seen_at + NOTED_EVERY <= moment:
        return window.status != "off" or told["status"] != "off" or window.ranges != told["ranges"]
    known = (window.is_wanted, window.status, window.reason, window.needs_base)
    if known != (told["wanted"], told["status"], told["reason"], told["needs_base"]):
        return True
    return window.gap_at != _gap_at(told) or len(window.ranges) != len(told["ranges"])


def _note(db: Session, instance: Instance, told: Mapping[str, Any]) -> None:
    if instance.desired_status == "erased":
        return
    window = recovery_windows.of_instance(db, instance)
    was_late, former_gap = window.status == "late", window.gap_at
    window.was_told(told, now(db))
    db.add(window)
    lost = window.gap_at is not None and window.gap_at != former_gap
    if lost or (window.status == "late" and not was_late):
        window.is_interrupted = True
        _interrupted(db, instance, told, lost=lost)
    elif window.is_interrupted and window.status == "archiving" and not window.needs_base:
        window.is_interrupted = False
        publish(db, instance, "backup.archiving_resumed.v1")
    elif window.is_interrupted and window.status == "off":
        window.is_interrupted = False
        resolve(db, instance, ["backup_archiving_interrupted"])


def _interrupted(db: Session, instance: Instance, told: Mapping[str, Any], *, lost: bool) -> None:
    if lost:
        reason, until = told["gap"]["reason"], told["gap"]["restorable_until"]
    else:
        reason, until = told["reason"] or "the server does not respond", told["newest_at"]
    event = "backup.archiving_interrupted.v1"
    publish(db, instance, event, reason=reason, restorable_until=until, is_lost=lost)


def _gap_at(told: Mapping[str, Any]) -> datetime | None:
    gap = told["gap"]
    return datetime.fromisoformat(gap["at"]) if gap else None
