"""Copies of backups: cells are told of which instances, and what they tell of them is kept."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.cells.client import CellClient
from control.events import resolve
from control.policy import backups as rules
from control.policy.plans import PLANS
from control.work import Operation, workflow
from control.workflows.instances.fault_isolation import isolated
from control.workflows.instances.subjects import publish
from storage.access import organizations
from storage.catalogue import cells
from storage.data import backup_copies, backup_settings
from storage.data.backup_copies import CopyStatus
from storage.database import Database, now
from storage.errors import StateConflict
from storage.instances import instances
from storage.instances.instances import GONE, Instance

NOTED_EVERY: Final = timedelta(seconds=60)
"""Where nothing changes but that more WAL was copied."""
NONE: Final[Answer] = {
    "wanted": False,
    "status": "off",
    "reason": None,
    "waiting": 0,
    "copied": 0,
    "newest_at": None,
    "restorable_until": None,
}
"""Of a cell that has no second store any more."""


@workflow("copies.tell", deadline_s=600, joins=True)
def tell(op: Operation) -> None:
    """The cell whether the backups of the instance are to be copied."""
    op.step("tell", lambda: _tell(op))


def _tell(op: Operation) -> Answer:
    with op.database.read() as db:
        instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"])
        if instance.desired_status in GONE or not has_second_store(db, instance):
            return {}
        wanted = is_wanted(db, instance)
        cell = op.services.cells.for_instance(db, instance)
    return cell.set_copying(instance.id, wanted=wanted, key=op.key("tell"), lease=op.lease)


def is_wanted(db: Session, instance: Instance) -> bool:
    plan = PLANS[organizations.fetch(db, instance.org_id).plan]
    chosen = backup_settings.of_instance(db, instance).copy_target
    return rules.is_copied(plan, chosen)


def has_second_store(db: Session, instance: Instance) -> bool:
    """As its cell last said."""
    if instance.cell_id is None:
        return False
    return bool(cells.fetch(db, instance.cell_id).has_second_store)


def check_target(db: Session, instance: Instance, asked: str | None) -> None:
    """StateConflict where it is asked for and there is none that backups could be copied to."""
    if asked == rules.SECOND_STORE and not has_second_store(db, instance):
        raise StateConflict(
            "cannot copy backups: this installation has no second store; its operator can name one"
            " with the setting backup_copy_store_url, then try again"
        )


def note(
    database: Database,
    client: CellClient,
    cell_id: str,
    known: Iterable[Instance],
    seen: Mapping[str, Answer],
) -> None:
    """What a cell tells of its instances, with the events of what changed."""
    with database.read() as db:
        former, moment = backup_copies.of_cell(db, cell_id), now(db)
    for instance in known:
        told = (seen.get(instance.id) or {}).get("copies")
        if told is None and instance.id in seen and instance.id in former:
            told = NONE
        if told is None or not _differs(former.get(instance.id), told, moment):
            continue
        with isolated(instance.id):
            copied = _copied(client, instance, former.get(instance.id), told)
            with database.write() as db:
                _note(
                    db, instances.fetch(db, instance.org_id, instance.id, lock=True), told, copied
                )


def _copied(
    client: CellClient, instance: Instance, former: CopyStatus | None, told: Mapping[str, Any]
) -> dict[str, str] | None:
    """By backup, when it was copied; None where that is as it was. Outside of any transaction."""
    if former is None and not told["copied"]:
        return None
    if former is not None and not former.has_other_copies(told):
        return None
    items = client.backup_copies(instance.id)["items"]
    return {each["backup_id"]: each["copied_at"] for each in items}


def _differs(former: CopyStatus | None, told: Mapping[str, Any], moment: datetime) -> bool:
    if former is None:
        return told["status"] != "off" or bool(told["copied"])
    if former.has_other_copies(told):
        return True
    said = (told["wanted"], told["status"], told["reason"], told["waiting"])
    if said != (former.is_wanted, former.status, former.reason, former.waiting):
        return True
    if told["status"] == "off":
        return False
    return former.seen_at is None or former.seen_at + NOTED_EVERY <= moment


def _note(
    db: Session, instance: Instance, told: Mapping[str, Any], copied: Mapping[str, str] | None
) -> None:
    if instance.desired_status == "erased":
        return
    copies = backup_copies.of_instance(db, instance)
    copies.was_told(told, now(db))
    db.add(copies)
    if copied is not None:
        backup_copies.note_copied(db, instance, copied)
    if copies.status == "late" and not copies.is_interrupted:
        copies.is_interrupted = True
        given = {"reason": copies.reason or "the second store does not respond"}
        publish(
            *(db, instance, "backup.copies_interrupted.v1"),
            **given,
            waiting=copies.waiting,
            restorable_until=told["restorable_until"],
        )
    elif copies.is_interrupted and copies.status in {"current", "off"}:
        copies.is_interrupted = False
        if copies.status == "current":
            publish(db, instance, "backup.copies_resumed.v1")
        else:
            resolve(db, instance, ["backup_copies_interrupted"])
