"""Backup settings: what an instance's owner chose, and which instances a schedule concerns."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, delete, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.access.organizations import Organization
from storage.catalogue.cells import Cell
from storage.columns import Owned, Record
from storage.data.backup_copies import CopyStatus
from storage.data.backups import COMPLETED, RETAINED, Backup
from storage.data.recovery_windows import RecoveryWindow
from storage.instances.instances import HOSTED, LIVE, Instance
from storage.lookups import by_key


class BackupSettings(Owned, Record):
    """What is NULL was not chosen: the plan's default holds."""

    __tablename__ = "backup_settings"

    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    frequency: Mapped[str | None]
    retention_days: Mapped[int | None]
    window_start: Mapped[str | None]
    continuous_archiving: Mapped[bool | None]
    copy_target: Mapped[str | None]
    updated_by: Mapped[str | None]
    updated_at: Mapped[datetime]

    def change(self, values: Mapping[str, Any], by: str | None, at: datetime) -> None:
        """Sets what is given of the choices, and leaves the rest; None takes one back."""
        for name, value in values.items():
            setattr(self, name, value)
        self.updated_by, self.updated_at = by, at


@dataclass(frozen=True)
class Scheduled:
    """An instance as far as its schedule is concerned.

    `newest_slot` is the last turn that a backup was begun for, `newest_data` the moment of the
    newest data that can be restored; `oldest_kept`: when the oldest backup was completed that its
    retention concerns. `is_archived` is what its cell was told of its WAL, `is_copied` what of
    copies of its backups.
    """

    org_id: str
    instance_id: str
    plan: str
    status: str
    ready_at: datetime
    updated_at: datetime
    frequency: str | None
    retention_days: int | None
    window_start: str | None
    engine: str
    continuous_archiving: bool | None
    is_archived: bool | None
    needs_base: bool | None
    base_asked_at: datetime | None
    copy_target: str | None
    has_second_store: bool | None
    is_copied: bool | None
    newest_slot: datetime | None
    newest_data: datetime | None
    oldest_kept: datetime | None


def of_instance(db: Session, instance: Instance) -> BackupSettings:
    """The instance's settings, also where nobody ever chose any; those are in no table yet."""
    found = by_key(db, BackupSettings, instance.id)
    if found is not None:
        return found
    ids = {"instance_id": instance.id, "org_id": instance.org_id}
    return BackupSettings(**ids, updated_at=instance.created_at)


def scheduled(db: Session, statuses: Collection[str], *, after: str, limit: int) -> list[Scheduled]:
    """Wanted instances with data in these statuses of all organizations, by id, after that one."""
    own = Backup.instance_id == Instance.id
    newest_slot = select(func.max(Backup.slot)).where(own).scalar_subquery()
    newest_data = select(func.max(Backup.started_at)).where(own, COMPLETED).scalar_subquery()
    oldest_kept = (
        select(func.min(Backup.completed_at)).where(own, COMPLETED, RETAINED).scalar_subquery()
    )
    rows: Any = (
        select(
            *(Instance.org_id, Instance.id, Organization.plan, Instance.status, Instance.ready_at),
            Instance.updated_at,
            *(BackupSettings.frequency, BackupSettings.retention_days),
            *(BackupSettings.window_start, Instance.engine, BackupSettings.continuous_archiving),
            *(RecoveryWindow.is_wanted, RecoveryWindow.needs_base, RecoveryWindow.base_asked_at),
            *(BackupSettings.copy_target, Cell.has_second_store, CopyStatus.is_wanted),
            *(newest_slot, newest_data, oldest_kept),
        )
        .join(Organization, Organization.id == Instance.org_id)
        .outerjoin(BackupSettings, BackupSettings.instance_id == Instance.id)
        .outerjoin(RecoveryWindow, RecoveryWindow.instance_id == Instance.id)
        .outerjoin(CopyStatus, CopyStatus.instance_id == Instance.id)
        .outerjoin(Cell, Cell.id == Instance.cell_id)
        .where(HOSTED, LIVE, Instance.ready_at.is_not(None), Instance.status.in_(statuses))
        .where(Instance.id > after)
    )
    found = db.execute(rows.order_by(Instance.id).limit(limit)).tuples()
    return [Scheduled(*row) for row in found]


def forget(db: Session, instance: Instance) -> None:
    """With an erased instance, its settings."""
    db.execute(
        delete(BackupSettings).where(
            BackupSettings.org_id == instance.org_id, BackupSettings.instance_id == instance.id
        )
    )
