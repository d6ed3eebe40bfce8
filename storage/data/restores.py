"""Restores: backups that became the data of a new instance, or again that of their own."""

from datetime import datetime
from typing import Final

from sqlalchemy import ForeignKey, Index, delete, or_, select, text
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.columns import Owned, Record, one_of
from storage.data.backups import Backup
from storage.errors import RecordNotFound
from storage.instances.instances import Instance
from storage.lookups import by_key, delete_oldest
from storage.pages import Page

MODES: Final = ("new_instance", "in_place")
STATUSES: Final = ("pending", "running", "completed", "failed")
OPEN_STATUSES: Final = ("pending", "running")
_OPEN: Final = text("status IN ('pending', 'running')")


class Restore(Owned, Record):
    """`instance_id` is the instance of the backup, `target_instance_id` the one that gets the data.

    Backups are named by ids alone: what is known of a restore outlives its backup.
    """

    __tablename__ = "restores"
    __table_args__ = (
        one_of("mode", MODES),
        one_of("status", STATUSES),
        Index(None, "instance_id", "id"),
        Index(None, "target_instance_id", "id"),
        Index(
            "ix_restores_open",
            "instance_id",
            postgresql_where=_OPEN,
            sqlite_where=_OPEN,
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    target_instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    backup_id: Mapped[str]
    pre_change_backup_id: Mapped[str | None]
    # The moment that the backup is recovered to with archived WAL; NULL: that of the backup.
    at: Mapped[datetime | None]
    mode: Mapped[str]
    status: Mapped[str] = mapped_column(default="pending")
    status_reason: Mapped[str | None]
    requested_by: Mapped[str | None]
    started_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    # Whether any of it was read from the second store; NULL until that is known.
    from_copy: Mapped[bool | None]

    # What workflows find; one that has ended stays as it ended.

    def begin(self, at: datetime) -> None:
        if self.status == "pending":
            self.status, self.started_at = "running", at

    def became_completed(self, at: datetime, *, from_copy: bool | None = None) -> None:
        if self.status in OPEN_STATUSES:
            self.status, self.status_reason = "completed", None
            self.completed_at, self.from_copy = at, from_copy

    def became_failed(self, reason: str, at: datetime) -> None:
        """`reason` is a sentence its owner can act on."""
        if self.status in OPEN_STATUSES:
            self.status, self.status_reason = "failed", reason
            self.completed_at = at


def request(
    db: Session,
    backup: Backup,
    target: Instance,
    mode: str,
    requested_by: str | None,
    *,
    at: datetime | None = None,
) -> Restore:
    """A new restore of the backup, in status `pending`."""
    made = Restore(
        id=identifiers.new("rst_"),
        org_id=backup.org_id,
        instance_id=backup.instance_id,
        target_instance_id=target.id,
        backup_id=backup.id,
        mode=mode,
        status="pending",
        requested_by=requested_by,
        at=at,
    )
    db.add(made)
    db.flush()
    return made


def fetch(db: Session, instance: Instance, restore_id: str, *, lock: bool = False) -> Restore:
    """One from or into the instance."""
    found = by_key(db, Restore, restore_id, lock=lock)
    if (
        found is None
        or found.org_id != instance.org_id
        or instance.id not in {found.instance_id, found.target_instance_id}
    ):
        raise RecordNotFound("restore not found")
    return found


def page(db: Session, instance: Instance, *, limit: int, after: str | None) -> Page[Restore]:
    """Those from or into the instance, newest first."""
    concerned = or_(Restore.instance_id == instance.id, Restore.target_instance_id == instance.id)
    rows = select(Restore).where(Restore.org_id == instance.org_id, concerned)
    return pages.keyset(db, rows, Restore.id, limit=limit, after=after)


def into(db: Session, target: Instance, mode: str) -> Restore | None:
    """The restore under way that the instance gets its data from."""
    rows = select(Restore).where(
        Restore.org_id == target.org_id,
        Restore.target_instance_id == target.id,
        Restore.mode == mode,
        Restore.status.in_(OPEN_STATUSES),
    )
    return db.scalars(rows.order_by(Restore.id.desc()).limit(1)).first()


def needed(db: Session, instance: Instance) -> set[str]:
    """The ids of the instance's backups that restores under way read from."""
    rows = select(Restore.backup_id).where(
        Restore.org_id == instance.org_id,
        Restore.instance_id == instance.id,
        _OPEN,
    )
    return set(db.scalars(rows))


def needed_in(db: Session, org_id: str) -> set[str]:
    """The same of all the organization's instances."""
    rows = select(Restore.backup_id).where(Restore.org_id == org_id, _OPEN)
    return set(db.scalars(rows))


def forget(db: Session, instance: Instance) -> None:
    """With an erased instance, what is known of its restores; not of those into others' data."""
    db.execute(
        delete(Restore).where(Restore.org_id == instance.org_id, Restore.instance_id == instance.id)
    )


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those that were asked for before that moment; how many went."""
    ended = Restore.status.not_in(OPEN_STATUSES)
    return delete_oldest(db, Restore.id, "rst_", before, limit, ended)
