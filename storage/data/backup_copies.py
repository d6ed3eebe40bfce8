"""Copies of backups: what cells tell of those of an instance in the second store."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ForeignKey, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Owned, Record, one_of
from storage.data import backups
from storage.instances.instances import Instance
from storage.lookups import by_key

STATUSES: Final = ("off", "copying", "current", "late")


class CopyStatus(Owned, Record):
    """As its cell told it at `seen_at`: how many backups wait to be copied, and are copied.

    `newest_at` is when the last one was, `restorable_until` the newest moment of archived WAL
    that is copied. `is_interrupted` from the event that says so until the one that says the
    opposite.
    """

    __tablename__ = "backup_copies"
    __table_args__ = (one_of("status", STATUSES),)

    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    is_wanted: Mapped[bool] = mapped_column(default=False)
    status: Mapped[str] = mapped_column(default="off")
    reason: Mapped[str | None]
    waiting: Mapped[int] = mapped_column(default=0)
    copied: Mapped[int] = mapped_column(default=0)
    newest_at: Mapped[datetime | None]
    restorable_until: Mapped[datetime | None]
    is_interrupted: Mapped[bool] = mapped_column(default=False)
    seen_at: Mapped[datetime | None]

    def was_told(self, told: Mapping[str, Any], at: datetime) -> None:
        """By its cell, of which the document of the cell tells."""
        self.is_wanted, self.status, self.reason = told["wanted"], told["status"], told["reason"]
        self.waiting, self.copied = told["waiting"], told["copied"]
        self.newest_at = _moment(told["newest_at"])
        self.restorable_until = _moment(told["restorable_until"])
        self.seen_at = at

    def has_other_copies(self, told: Mapping[str, Any]) -> bool:
        """Whether backups were copied since, or copies removed."""
        return (self.copied, self.newest_at) != (told["copied"], _moment(told["newest_at"]))


def of_instance(db: Session, instance: Instance) -> CopyStatus:
    """The instance's, also where its cell has told nothing; that is in no table yet."""
    found = by_key(db, CopyStatus, instance.id)
    if found is not None:
        return found
    ids = {"instance_id": instance.id, "org_id": instance.org_id}
    none = {"is_wanted": False, "status": "off", "is_interrupted": False}
    return CopyStatus(**ids, **none, waiting=0, copied=0)


def of_cell(db: Session, cell_id: str) -> dict[str, CopyStatus]:
    """By instance."""
    rows = select(CopyStatus).join(Instance, Instance.id == CopyStatus.instance_id)
    found = db.scalars(rows.where(Instance.cell_id == cell_id))
    return {each.instance_id: each for each in found}


def note_copied(db: Session, instance: Instance, copied: Mapping[str, str]) -> None:
    """By backup, when it was copied; of the others there is no copy, or not any more."""
    for backup in backups.completed(db, instance):
        at = _moment(copied.get(backup.id))
        if backup.copied_at != at:
            backup.copied_at = at


def forget(db: Session, instance: Instance) -> None:
    """With an erased instance, what is known of its copies."""
    db.execute(
        delete(CopyStatus).where(
            CopyStatus.org_id == instance.org_id, CopyStatus.instance_id == instance.id
        )
    )


def _moment(told: str | None) -> datetime | None:
    return datetime.fromisoformat(told) if told else None
