"""Recovery windows: what cells tell of the archived WAL of instances."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ForeignKey, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Json, Owned, Record, one_of
from storage.instances.instances import Instance
from storage.lookups import by_key

STATUSES: Final = ("off", "waiting", "archiving", "late")


class RecoveryWindow(Owned, Record):
    """As its cell told it at `seen_at`; `ranges` are moments from and until when, oldest first.

    `is_interrupted` from the event that says so until the one that says the opposite.
    """

    __tablename__ = "recovery_windows"
    __table_args__ = (one_of("status", STATUSES),)

    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    is_wanted: Mapped[bool] = mapped_column(default=False)
    status: Mapped[str] = mapped_column(default="off")
    reason: Mapped[str | None]
    needs_base: Mapped[bool] = mapped_column(default=False)
    is_interrupted: Mapped[bool] = mapped_column(default=False)
    ranges: Mapped[list[dict[str, str]]] = mapped_column(Json, default=list)
    gap_at: Mapped[datetime | None]
    base_asked_at: Mapped[datetime | None]
    seen_at: Mapped[datetime | None]

    def was_told(self, told: Mapping[str, Any], at: datetime) -> None:
        """By its cell, of which the document of the cell tells."""
        self.is_wanted, self.status = told["wanted"], told["status"]
        self.reason, self.needs_base = told["reason"], told["needs_base"]
        self.ranges = list(told["ranges"])
        gap = told["gap"]
        self.gap_at = datetime.fromisoformat(gap["at"]) if gap else None
        self.seen_at = at


def of_instance(db: Session, instance: Instance) -> RecoveryWindow:
    """The instance's, also where its cell has told nothing; that is in no table yet."""
    found = by_key(db, RecoveryWindow, instance.id)
    if found is not None:
        return found
    return RecoveryWindow(
        instance_id=instance.id,
        org_id=instance.org_id,
        is_wanted=False,
        status="off",
        needs_base=False,
        is_interrupted=False,
        ranges=[],
    )


def of_cell(db: Session, cell_id: str) -> dict[str, RecoveryWindow]:
    """By instance."""
    rows = select(RecoveryWindow).join(Instance, Instance.id == RecoveryWindow.instance_id)
    found = db.scalars(rows.where(Instance.cell_id == cell_id))
    return {each.instance_id: each for each in found}


def forget(db: Session, instance: Instance) -> None:
    """With an erased instance, what it could be restored to."""
    db.execute(
        delete(RecoveryWindow).where(
            RecoveryWindow.org_id == instance.org_id, RecoveryWindow.instance_id == instance.id
        )
    )
