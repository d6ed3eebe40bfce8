"""Migrations: data that comes into an instance from elsewhere, from the request to the end."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ForeignKey, Index, Select, delete, select, text
from sqlalchemy.orm import Mapped, Session, defer, mapped_column

from storage import identifiers, pages
from storage.access.scopes import Within
from storage.columns import Json, Owned, Record, one_of
from storage.errors import RecordNotFound, StateConflict
from storage.instances import in_scope
from storage.instances.instances import GONE, Instance
from storage.lookups import by_key, delete_oldest
from storage.pages import Page

SOURCE_KINDS: Final = ("upload", "connection")
MODES: Final = ("copy", "copy_and_sync")
ENDED: Final = ("completed", "failed", "cancelled")
STATUSES: Final = (
    *("awaiting_source", "preflight", "copying", "syncing", "cutting_over", "verifying"),
    *("cancelling", *ENDED),
)
_BEFORE_CUTOVER: Final = ("awaiting_source", "preflight", "copying", "syncing")
# As literals, without which partial indexes are of no use: an instance has had many migrations.
_OPEN: Final = "{0}status NOT IN ('completed', 'failed', 'cancelled')"
_WATCHED: Final = f"({_OPEN} OR {{0}}way_back_until IS NOT NULL)"
_IS_OPEN: Final = text(_OPEN.format("migrations."))
_IS_WATCHED: Final = text(_WATCHED.format("migrations."))
_LONG: Final = ("preflight", "verification")
"""What a cell may say much in."""


def _partial(name: str, where: str, *, unique: bool = False) -> Index:
    held = text(where.format(""))
    return Index(name, "instance_id", unique=unique, postgresql_where=held, sqlite_where=held)


class Migration(Owned, Record):
    """Transitions raise StateConflict where the status forbids them and change nothing then.

    Its cell runs it. `status` is what the cell says, but for what was asked of the cell and has not
    reached it: `cancelling`, and `cutting_over` with a `cutover_at`. One that has ended stays as it
    ended, but for what is told of its way back. `told_at` and `told_percent` are of the last event
    that told of its progress.
    """

    __tablename__ = "migrations"
    __table_args__ = (
        one_of("source_kind", SOURCE_KINDS),
        one_of("mode", MODES),
        one_of("status", STATUSES),
        Index(None, "instance_id", "id"),
        Index(None, "org_id", "id"),
        _partial("ix_migrations_open", _OPEN, unique=True),
        _partial("ix_migrations_watched", _WATCHED),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    source_kind: Mapped[str]
    source_format: Mapped[str | None]
    source_table: Mapped[str | None]
    mode: Mapped[str]
    dry_run: Mapped[bool]
    status: Mapped[str] = mapped_column(default="awaiting_source")
    status_reason: Mapped[str | None]
    preflight: Mapped[dict[str, Any] | None] = mapped_column(Json)
    progress: Mapped[dict[str, Any] | None] = mapped_column(Json)
    verification: Mapped[dict[str, Any] | None] = mapped_column(Json)
    keep_way_back_s: Mapped[int | None]
    way_back_until: Mapped[datetime | None]
    requested_by: Mapped[str | None]
    source_received_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    cutover_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    told_at: Mapped[datetime | None]
    told_percent: Mapped[int | None]

    @property
    def is_open(self) -> bool:
        return self.status not in ENDED

    # What callers ask.

    def check_awaits_source(self) -> None:
        """StateConflict unless its source is still to be sent."""
        if self.status != "awaiting_source":
            raise StateConflict(
                f"cannot send the source of a migration that is {self.status}; only while it is"
                " awaiting_source"
            )

    def cancel(self) -> None:
        """End it, or the way back that a completed one keeps; again it changes nothing."""
        if self.status == "completed" and self.way_back_until is not None:
            return
        if not self.is_open:
            raise StateConflict(f"cannot cancel a migration that is {self.status}")
        if self.status != "cancelling":
            self.status, self.status_reason = "cancelling", None

    def cut_over(self, keep_way_back_s: int, at: datetime) -> None:
        """End the sync as soon as the instance has everything."""
        if self.status != "syncing":
            hint = "; wait until it is syncing" if self.status in _BEFORE_CUTOVER else ""
            if self.mode == "copy":
                hint = ": without sync it needs no cutover"
            raise StateConflict(f"cannot cut over a migration that is {self.status}{hint}")
        self.status, self.status_reason = "cutting_over", None
        self.keep_way_back_s, self.cutover_at = keep_way_back_s, at

    # What workflows find; one that has ended stays as it ended.

    def began(self, at: datetime) -> None:
        """Its cell knows of it."""
        self.started_at = self.started_at or at

    def is_held_up(self, reason: str) -> None:
        """What it waits for is tried again; the owner reads why."""
        if self.is_open:
            self.status_reason = reason

    def give_up(self, reason: str) -> None:
        """Nobody goes on with it: its cell is to be told so."""
        self.cancel()
        self.status_reason = reason

    def was_observed(self, told: Mapping[str, Any], at: datetime) -> None:
        """Take over what its cell says of it, in the words of cell/openapi.yaml."""
        kept = self.way_back_until is not None
        self.way_back_until = _moment(told["way_back_until"])
        if not self.is_open:
            if kept:
                self.status_reason = told["reason"]
                self.progress = told["progress"] or self.progress
            return
        self.source_received_at = _moment(told["source_received_at"])
        for name in ("preflight", "progress", "verification"):
            if told[name] is not None and told[name] != getattr(self, name):
                setattr(self, name, told[name])
        if told["status"] in ENDED:
            self._end(told["status"], told["reason"] or self.status_reason, at)
        elif not self._awaits_cell(told["status"]):
            # It has heard: what it is before a cutover it is again, as that could not be made.
            self.cutover_at = None
            if told["status"] != self.status or told["reason"] is not None:
                self.status_reason = told["reason"]
            self.status = told["status"]

    def _awaits_cell(self, told: str) -> bool:
        """Whether the cell has not heard yet of what was asked."""
        if self.status == "cancelling":
            return True
        return self.cutover_at is not None and told in _BEFORE_CUTOVER

    def cutover_failed(self, reason: str) -> None:
        """The sync goes on."""
        if self.status == "cutting_over":
            self.status, self.status_reason = "syncing", reason
            self.keep_way_back_s = self.cutover_at = None

    def became_failed(self, reason: str, at: datetime) -> None:
        """`reason` is a sentence its owner can act on."""
        if self.is_open:
            self._end("failed", reason, at)

    def became_cancelled(self, reason: str | None, at: datetime) -> None:
        """Nothing of it is left, as far as its cell can tell."""
        if self.is_open:
            self._end("cancelled", reason or self.status_reason, at)

    def _end(self, status: str, reason: str | None, at: datetime) -> None:
        self.status = status
        self.status_reason = reason
        self.completed_at = at


def _moment(told: str | None) -> datetime | None:
    return None if told is None else datetime.fromisoformat(told)


def request(
    db: Session,
    instance: Instance,
    *,
    source: Mapping[str, Any],
    mode: str,
    dry_run: bool,
    requested_by: str | None,
) -> Migration:
    """A new migration into the instance, in status `awaiting_source`."""
    made = Migration(
        id=identifiers.new("mig_"),
        org_id=instance.org_id,
        instance_id=instance.id,
        source_kind=source["kind"],
        source_format=source.get("format"),
        source_table=source.get("table"),
        mode=mode,
        dry_run=dry_run,
        status="awaiting_source",
        requested_by=requested_by,
    )
    db.add(made)
    db.flush()
    return made


def fetch(db: Session, instance: Instance, migration_id: str, *, lock: bool = False) -> Migration:
    """One into the instance."""
    found = by_key(db, Migration, migration_id, lock=lock)
    if found is None or found.org_id != instance.org_id or found.instance_id != instance.id:
        raise RecordNotFound("migration not found")
    return found


def page(db: Session, instance: Instance, *, limit: int, after: str | None) -> Page[Migration]:
    """Those into the instance, newest first, without what may be long."""
    rows = _short().where(Migration.org_id == instance.org_id, Migration.instance_id == instance.id)
    return pages.keyset(db, rows, Migration.id, limit=limit, after=after)


def page_of_org(
    db: Session, org_id: str, *, scope: Within, limit: int, after: str | None, status: str | None
) -> Page[Migration]:
    """Those into instances that are in the scope, newest first, without what may be long."""
    rows = _short().where(Migration.org_id == org_id)
    if status is not None:
        rows = rows.where(Migration.status == status)
    if scope is not None:
        rows = rows.where(Migration.instance_id.in_(in_scope.ids(org_id, scope)))
    return pages.keyset(db, rows, Migration.id, limit=limit, after=after)


def _short() -> Select[Migration]:
    return select(Migration).options(*(defer(getattr(Migration, name)) for name in _LONG))


def unfinished(db: Session, instance: Instance, *, lock: bool = False) -> Migration | None:
    """The one that is being made into the instance."""
    rows = select(Migration).where(
        Migration.org_id == instance.org_id, Migration.instance_id == instance.id, _IS_OPEN
    )
    return db.scalars(rows.with_for_update() if lock else rows).first()


def check_none(db: Session, instance: Instance, verb: str) -> None:
    """StateConflict while one is being made into the instance."""
    found = unfinished(db, instance)
    if found is not None:
        raise StateConflict(
            f"cannot {verb} an instance into which a migration is made ({found.id} is"
            f" {found.status}); wait until it has ended, or cancel it"
        )


def way_back(db: Session, instance: Instance, *, lock: bool = False) -> Migration | None:
    """The one whose source gets what is written to the instance."""
    rows = select(Migration).where(
        *(Migration.org_id == instance.org_id, Migration.instance_id == instance.id),
        *(_IS_WATCHED, Migration.way_back_until.is_not(None)),
    )
    return db.scalars(rows.with_for_update() if lock else rows).first()


def check_no_way_back(db: Session, instance: Instance, verb: str) -> None:
    """StateConflict while one is kept."""
    found = way_back(db, instance)
    if found is not None:
        raise StateConflict(
            f"cannot {verb} an instance while the migration {found.id} keeps a way back from it;"
            " wait until that has ended, or cancel the migration"
        )


def check_free(db: Session, instance: Instance, verb: str) -> None:
    """StateConflict while one is made, or a way back from one is kept."""
    check_none(db, instance, verb)
    check_no_way_back(db, instance, verb)


@dataclass(frozen=True)
class WatchedMigration:
    """One that its cell is to be asked about."""

    org_id: str
    instance_id: str
    id: str


def watched(db: Session, cell_id: str, *, after: str, limit: int) -> list[WatchedMigration]:
    """Those that the cell has under way, or keeps a way back of, by id; their instances live."""
    rows = select(Migration.org_id, Migration.instance_id, Migration.id).join(
        Instance, Instance.id == Migration.instance_id
    )
    rows = rows.where(
        _IS_WATCHED,
        Migration.id > after,
        Instance.cell_id == cell_id,
        Instance.desired_status.not_in(GONE),
    )
    found = db.execute(rows.order_by(Migration.id).limit(limit))
    return [WatchedMigration(*row) for row in found]


def watched_cells(db: Session) -> list[str]:
    """The cells that have any such."""
    rows = select(Instance.cell_id).join(Migration, Instance.id == Migration.instance_id)
    rows = rows.where(_IS_WATCHED, Instance.desired_status.not_in(GONE))
    return list(db.scalars(rows.distinct().order_by(Instance.cell_id)))


def forget(db: Session, instance: Instance) -> None:
    """With an erased instance, what is known of its migrations."""
    db.execute(
        delete(Migration).where(
            Migration.org_id == instance.org_id, Migration.instance_id == instance.id
        )
    )


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those that were asked for before that moment; how many went."""
    ended = Migration.status.in_(ENDED)
    return delete_oldest(db, Migration.id, "mig_", before, limit, ended)
