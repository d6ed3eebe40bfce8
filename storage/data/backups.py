"""Backups: copies of an instance's data in the store, from the request to the removal."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    ForeignKey,
    Index,
    Select,
    TextClause,
    and_,
    case,
    delete,
    exists,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.orm import Mapped, Session, aliased, mapped_column

from storage import identifiers, pages
from storage.access.organizations import Organization
from storage.access.scopes import Within
from storage.columns import Json, Owned, Record, one_of
from storage.errors import RecordNotFound, StateConflict
from storage.instances import in_scope
from storage.instances.instances import LIVE, Instance
from storage.lookups import by_key, delete_oldest
from storage.pages import Page

KINDS: Final = ("scheduled", "manual", "pre_change")
STATUSES: Final = ("pending", "running", "completed", "failed", "deleting", "deleted")
OPEN_STATUSES: Final = ("pending", "running")
_TOLD: Final = ("size_bytes", "stored_bytes", "sha256", "extensions", "verification")
"""What a cell says of one that is complete, as cell/openapi.yaml has it."""
# As literals, without which partial indexes are of no use: an instance has had many backups.
COMPLETED: Final = text("status = 'completed'")
RETAINED: Final = text("kind != 'manual'")
"""Of what was completed, that it is kept no longer than its retention."""
_MANUAL: Final = text("kind = 'manual'")
_OPEN: Final = text("status IN ('pending', 'running')")
_TO_DROP: Final = text("dropped_at IS NULL AND status IN ('deleting', 'failed')")


_RETAINED: Final = text(f"{COMPLETED} AND {RETAINED}")


def _partial(name: str, where: TextClause, *columns: str) -> Index:
    return Index(name, *columns, postgresql_where=where, sqlite_where=where)


class Backup(Owned, Record):
    """Transitions raise StateConflict where the status forbids them and change nothing then.

    `slot` is the turn of its schedule, NULL of other kinds: no two of an instance have the same.
    `storage_bytes` is what the instance was ordered with then, `size_bytes` what its data took.
    `dropped_at`: since when nothing of it is in the store. `method` is full or incremental, NULL
    while that is not known; an incremental one is restored with its `parent_id`.
    """

    __tablename__ = "backups"
    __table_args__ = (
        one_of("kind", KINDS),
        one_of("status", STATUSES),
        Index(None, "instance_id", "id"),
        Index(None, "instance_id", "slot", unique=True),
        Index(None, "org_id", "slot"),
        _partial("ix_backups_completed", COMPLETED, "instance_id", "started_at"),
        _partial("ix_backups_retained", _RETAINED, "instance_id", "completed_at"),
        _partial("ix_backups_manual", _MANUAL, "org_id"),
        _partial("ix_backups_open", _OPEN, "instance_id", "id"),
        _partial("ix_backups_to_drop", _TO_DROP, "instance_id", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    kind: Mapped[str]
    label: Mapped[str | None]
    status: Mapped[str] = mapped_column(default="pending")
    status_reason: Mapped[str | None]
    engine: Mapped[str]
    engine_version: Mapped[str]
    size: Mapped[str]
    storage_bytes: Mapped[int] = mapped_column(BigInteger)
    size_bytes: Mapped[int | None] = mapped_column(BigInteger)
    stored_bytes: Mapped[int | None] = mapped_column(BigInteger)
    sha256: Mapped[str | None]
    extensions: Mapped[list[str] | None] = mapped_column(Json)
    verification: Mapped[dict[str, Any] | None] = mapped_column(Json)
    slot: Mapped[datetime | None]
    requested_by: Mapped[str | None]
    started_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    dropped_at: Mapped[datetime | None]
    # When all of it was in the second store; NULL: there is no copy, as far as is known.
    copied_at: Mapped[datetime | None]
    # The archived WAL that continues it, and the first moment that this can recover.
    wal_chain_id: Mapped[str | None]
    consistent_at: Mapped[datetime | None]
    method: Mapped[str | None]
    parent_id: Mapped[str | None]

    def _move(self, verb: str, allowed: Collection[str], status: str) -> None:
        if self.status not in allowed:
            raise StateConflict(f"cannot {verb} a backup that is {self.status}")
        self.status = status
        self.status_reason = None

    # What callers ask.

    def check_restorable(self, verb: str = "restore") -> None:
        """StateConflict unless all of it is in the store."""
        if self.status != "completed":
            reason = f": {self.status_reason}" if self.status_reason else ""
            raise StateConflict(f"cannot {verb} a backup that is {self.status}{reason}")

    def check_downloadable(self) -> None:
        """StateConflict where it holds only what has changed."""
        self.check_restorable("download")
        if self.parent_id is not None:
            raise StateConflict(
                "cannot download an incremental backup, which has only what has changed: download a"
                " full one, such as a manual backup, or restore it into a new instance"
            )

    def delete(self) -> None:
        """Remove it from the store. Those that nobody asked for go by themselves."""
        if self.kind != "manual":
            raise StateConflict(
                f"cannot delete a {self.kind} backup: it is removed when its retention is over"
            )
        self._move("delete", ("completed", "failed"), "deleting")
        self.status_reason = "it was deleted by request"

    # What workflows find.

    def begin(self) -> None:
        self._move("begin", OPEN_STATUSES, "running")

    def is_held_up(self, reason: str) -> None:
        """What it waits for is tried again; the owner reads why."""
        if self.status in OPEN_STATUSES:
            self.status_reason = reason

    def became_completed(self, told: Mapping[str, Any]) -> None:
        """All of it is in the store, and was verified there. `told` is what the cell says of it."""
        self._move("complete", OPEN_STATUSES, "completed")
        for name in _TOLD:
            setattr(self, name, told[name])
        self.engine_version = told["engine_version"]
        self.started_at = datetime.fromisoformat(told["started_at"])
        self.completed_at = datetime.fromisoformat(told["completed_at"])
        # Absent from what an earlier version of a cell tells.
        self.method, self.parent_id = told.get("method"), told.get("parent_id")
        self.wal_chain_id = told.get("wal_chain_id")
        consistent_at = told.get("consistent_at")
        self.consistent_at = datetime.fromisoformat(consistent_at) if consistent_at else None

    def became_failed(self, reason: str) -> None:
        """`reason` is a sentence its owner can act on."""
        self._move("fail", OPEN_STATUSES, "failed")
        self.status_reason = reason

    def expire(self, reason: str) -> None:
        self._move("expire", ("completed",), "deleting")
        self.status_reason = reason

    def became_dropped(self, at: datetime) -> None:
        """Nothing of it is in the store any more. One that failed stays as failed."""
        self.dropped_at, self.copied_at = at, None
        if self.status == "deleting":
            self.status = "deleted"


def request(db: Session, instance: Instance, kind: str, **given: Any) -> Backup:
    """A new backup of the instance as it is ordered now, in status `pending`."""
    made = Backup(
        id=identifiers.new("bkp_"),
        org_id=instance.org_id,
        instance_id=instance.id,
        kind=kind,
        status="pending",
        engine=instance.engine,
        engine_version=instance.engine_version,
        size=instance.size,
        storage_bytes=instance.storage_bytes,
        **given,
    )
    db.add(made)
    db.flush()
    return made


def take_over(db: Session, instance: Instance, told: Mapping[str, Any]) -> Backup:
    """One that is in the store and not here, as it was made after this database was backed up.

    Raises StateConflict where it is another instance's.
    """
    if by_key(db, Backup, told["backup_id"]) is not None:
        raise StateConflict("the cell lists a backup that is another instance's")
    made = Backup(
        id=told["backup_id"],
        org_id=instance.org_id,
        instance_id=instance.id,
        kind=told["kind"],
        status="pending",
        engine=told["engine"],
        engine_version=told["engine_version"],
        size=instance.size,
        storage_bytes=instance.storage_bytes,
    )
    made.became_completed(told)
    db.add(made)
    db.flush()
    return made


def fetch(db: Session, instance: Instance, backup_id: str, *, lock: bool = False) -> Backup:
    found = by_key(db, Backup, backup_id, lock=lock)
    if found is None or found.instance_id != instance.id or found.org_id != instance.org_id:
        raise RecordNotFound("backup not found")
    return found


def page(
    db: Session,
    instance: Instance,
    *,
    limit: int,
    after: str | None,
    status: str | None = None,
    kind: str | None = None,
) -> Page[Backup]:
    """The instance's backups, newest first; deleted ones only where asked for."""
    rows = _of(instance)
    rows = rows.where(Backup.status == status if status else Backup.status != "deleted")
    if kind is not None:
        rows = rows.where(Backup.kind == kind)
    return pages.keyset(db, rows, Backup.id, limit=limit, after=after)


def _of(instance: Instance) -> Select[Backup]:
    return select(Backup).where(Backup.org_id == instance.org_id, Backup.instance_id == instance.id)


def first_open(db: Session, instance: Instance, *kinds: str) -> Backup | None:
    """The oldest of these kinds that is to be made, or is being made."""
    rows = _of(instance).where(_OPEN, Backup.kind.in_(kinds))
    return db.scalars(rows.order_by(Backup.id).limit(1)).first()


def open_since(db: Session, before: datetime, limit: int) -> list[Backup]:
    """Of all organizations, those requested before that moment that are not made yet."""
    rows = select(Backup).where(_OPEN, Backup.created_at < before)
    return list(db.scalars(rows.order_by(Backup.id).limit(limit)))


def count_manual(db: Session, org_id: str) -> int:
    """How many the organization has asked for and holds, those being made and removed included."""
    held = ("pending", "running", "completed", "deleting")
    rows = select(func.count()).select_from(Backup)
    return db.scalars(rows.where(Backup.org_id == org_id, _MANUAL, Backup.status.in_(held))).one()


def stored_bytes(db: Session, org_id: str) -> int:
    """What the complete ones of the organization's live instances take in the store."""
    rows: Any = select(func.coalesce(func.sum(Backup.stored_bytes), 0))
    found = db.scalar(_of_live(rows).where(Backup.org_id == org_id, Instance.org_id == org_id))
    return int(found or 0)


def stored_by_org(db: Session) -> list[tuple[str, str, int]]:
    """Each organization that has some, its plan, and how many bytes they take."""
    rows: Any = select(Backup.org_id, Organization.plan, func.sum(Backup.stored_bytes))
    rows = _of_live(rows).join(Organization, Organization.id == Backup.org_id)
    return [
        (org, plan, int(taken))
        for org, plan, taken in db.execute(rows.group_by(Backup.org_id, Organization.plan))
    ]


def stored(db: Session, org_id: str) -> list[Backup]:
    """The complete ones of the organization's live instances."""
    rows: Any = _of_live(select(Backup)).where(Backup.org_id == org_id, Instance.org_id == org_id)
    return list(db.scalars(rows))


def _of_live(rows: Select[Any]) -> Select[Any]:
    found = rows.join(Instance, Instance.id == Backup.instance_id)
    return found.where(Backup.status == "completed", LIVE)


def completed(db: Session, instance: Instance) -> list[Backup]:
    """Those that can be restored, oldest first."""
    rows = _of(instance).where(COMPLETED)
    return list(db.scalars(rows.order_by(Backup.id)))


def to_drop(db: Session, instance: Instance, failed_before: datetime, limit: int) -> list[str]:
    """The ids of those to be removed from the store: unwanted, or failed and perhaps in part there.

    Of failed ones those requested before that moment: a cell may still be at a later one.
    """
    rows = _of(instance).where(_TO_DROP, _is_left(failed_before))
    return [each.id for each in db.scalars(rows.order_by(Backup.id).limit(limit))]


def instances_to_drop(db: Session, failed_before: datetime, limit: int) -> list[tuple[str, str]]:
    """The organization and id of instances that have some `to_drop`."""
    rows = select(Backup.org_id, Backup.instance_id).where(_TO_DROP, _is_left(failed_before))
    return list(db.execute(rows.distinct().limit(limit)).tuples())


def _is_left(failed_before: datetime) -> ColumnElement[bool]:
    """And nothing that is in the store builds on it, which goes before."""
    child = aliased(Backup)
    built_on = exists().where(
        child.org_id == Backup.org_id,
        child.instance_id == Backup.instance_id,
        child.parent_id == Backup.id,
        child.dropped_at.is_(None),
    )
    is_over = or_(Backup.status == "deleting", Backup.created_at < failed_before)
    return and_(is_over, ~built_on)


def by_ids(db: Session, instance: Instance, ids: Collection[str]) -> list[Backup]:
    return list(db.scalars(_of(instance).where(Backup.id.in_(ids))))


def forget(db: Session, instance: Instance) -> None:
    """With an erased instance its backups are erased, and what is known of them."""
    db.execute(
        delete(Backup).where(Backup.org_id == instance.org_id, Backup.instance_id == instance.id)
    )


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` that were requested before then and hold nothing; how many went."""
    return delete_oldest(db, Backup.id, "bkp_", before, limit, Backup.dropped_at.is_not(None))


def ended_between(
    db: Session, org_id: str, since: datetime, until: datetime, *, scope: Within
) -> tuple[int, int, int]:
    """Of the schedules' backups of these slots, how many completed, failed and were verified."""
    counts = (
        func.count(Backup.completed_at),
        func.count(case((Backup.status == "failed", 1))),
        func.count(case((Backup.verification.is_not(None), 1))),
    )
    every: Any = select(*counts).select_from(Backup)
    rows = every.where(Backup.org_id == org_id, Backup.slot >= since, Backup.slot < until)
    completed_, failed, verified = db.execute(_within(rows, org_id, scope)).one()
    return int(completed_), int(failed), int(verified)


def oldest_restorable(db: Session, org_id: str, *, scope: Within) -> datetime | None:
    """The moment of the oldest data that can be restored now; None if none can."""
    rows = select(func.min(Backup.started_at)).where(
        Backup.org_id == org_id, Backup.status == "completed"
    )
    oldest: datetime | None = db.scalars(_within(rows, org_id, scope)).one()
    return oldest


def _within(rows: Select[Any], org_id: str, scope: Within) -> Select[Any]:
    if scope is None:
        return rows
    return rows.where(Backup.instance_id.in_(in_scope.ids(org_id, scope)))
