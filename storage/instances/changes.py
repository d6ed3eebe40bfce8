"""Changes: what was asked to be different about an instance, and what became of it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast

from sqlalchemy import ColumnElement, ForeignKey, Index, bindparam, select, text
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.columns import Json, Owned, Record, one_of
from storage.instances.instances import Instance
from storage.lookups import delete_oldest
from storage.pages import Page

COLUMNS: Final = {
    "size": "size",
    "storage": "storage_bytes",
    "engine_version": "engine_version",
    "placement": "placement",
    "maintenance_window": "maintenance_window",
    "name": "name",
}
"""Each kind of change and the instance's column it is about."""
IMMEDIATE: Final = frozenset({"name", "maintenance_window"})
"""Kinds the cell need not know of: they apply in the request itself."""
STATUSES: Final = ("pending", "applied", "failed")
_PENDING: Final = text("status = 'pending'")


class Change(Owned, Record):
    __tablename__ = "changes"
    __table_args__ = (
        one_of("kind", COLUMNS),
        one_of("status", STATUSES),
        Index(None, "instance_id", "id"),
        # Each order asks what is pending of all instances, and an instance may have had many.
        Index(
            "ix_changes_pending",
            *("instance_id", "id"),
            postgresql_where=_PENDING,
            sqlite_where=_PENDING,
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    kind: Mapped[str]
    old: Mapped[Any] = mapped_column(Json)
    new: Mapped[Any] = mapped_column(Json)
    status: Mapped[str] = mapped_column(default="pending")
    requested_by: Mapped[str | None]
    applied_at: Mapped[datetime | None]

    def apply(self, instance: Instance, at: datetime) -> None:
        """Write the new value into the instance; the change is history from then on."""
        setattr(instance, COLUMNS[self.kind], self.new)
        self.status = "applied"
        self.applied_at = at


def is_pending(change: Any) -> ColumnElement[bool]:
    """That the change, or an alias of them, waits to be applied."""
    # As a literal, without which a partial index is of no use.
    pending: Any = bindparam(None, "pending", literal_execute=True)
    return cast("ColumnElement[bool]", change.status == pending)


PENDING: Final = is_pending(Change)


def order(
    db: Session,
    instance: Instance,
    wanted: Mapping[str, Any],
    *,
    requested_by: str | None,
    now: datetime,
) -> list[Change]:
    """Record a change per kind that differs; name and window apply at once, the rest waits.

    Conflict unless the instance may be changed; when anything waits, it is `resizing` afterwards.
    """
    differing = {k: new for k, new in wanted.items() if getattr(instance, COLUMNS[k]) != new}
    if differing:
        instance.change(waits=not IMMEDIATE.issuperset(differing))
    ordered = []
    for kind, new in differing.items():
        change = Change(
            id=identifiers.new("chg_"),
            org_id=instance.org_id,
            instance_id=instance.id,
            kind=kind,
            old=getattr(instance, COLUMNS[kind]),
            new=new,
            requested_by=requested_by,
        )
        if kind in IMMEDIATE:
            change.apply(instance, now)
        db.add(change)
        ordered.append(change)
    db.flush()
    return ordered


def pending(db: Session, org_id: str, instance_id: str) -> list[Change]:
    """Changes that wait to be applied, oldest first."""
    rows = select(Change).where(Change.org_id == org_id, Change.instance_id == instance_id, PENDING)
    return list(db.scalars(rows.order_by(Change.id)))


def give_up(db: Session, org_id: str, instance_id: str) -> None:
    """What waits to be applied never will be."""
    for change in pending(db, org_id, instance_id):
        change.status = "failed"


def page(
    db: Session, org_id: str, instance_id: str, *, limit: int, after: str | None
) -> Page[Change]:
    """The instance's changes, newest first."""
    rows = select(Change).where(Change.org_id == org_id, Change.instance_id == instance_id)
    return pages.keyset(db, rows, Change.id, limit=limit, after=after)


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those that were asked for before that moment; how many went."""
    return delete_oldest(db, Change.id, "chg_", before, limit, ~PENDING)
