"""Instances: the record of what is wanted of a database and what it is, and its transitions."""

import functools
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    ForeignKey,
    Index,
    Integer,
    Select,
    bindparam,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import pages
from storage.access.scopes import NOWHERE, RecordPlace, Within
from storage.access.teams import owning_team
from storage.columns import DatabaseClock, Json, Owned, Record, is_among, one_of
from storage.errors import RecordNotFound, StateConflict
from storage.lookups import by_key
from storage.pages import Page
from storage.prepared import Prepared, RecordInsertion

STATUSES: Final = (
    "requested",
    "provisioning",
    "running",
    "pausing",
    "paused",
    "resuming",
    "resizing",
    "restoring",
    "failed",
    "deleting",
    "deleted",
    "erasing",
    "erased",
)
DESIRED: Final = ("running", "paused", "deleted", "erased")
PLACEMENTS: Final = ("shared", "secure")
GONE: Final = ("deleted", "erased")
ERASABLE: Final = tuple(status for status in STATUSES if status not in ("erasing", "erased"))
TRANSITIONAL: Final = frozenset(
    {
        *("requested", "provisioning", "pausing", "resuming", "resizing", "restoring"),
        *("deleting", "erasing"),
    }
)
"""Statuses in which some operation must be under way."""
_ENGINE_RUNS: Final = frozenset({"running", "pausing", "resizing"})
"""Statuses in which what the cell tells of an engine that runs still holds."""
LIVE: Final = text("desired_status IN ('running', 'paused')")
_HELD: Final = text("status != 'erased'")


class Instance(Owned, Record):
    """Transitions raise StateConflict where the status forbids them and change nothing then.

    The verbs (`pause`) are what callers ask; `became_…` is what workflows found to be so.
    """

    __tablename__ = "instances"
    __table_args__ = (
        one_of("status", STATUSES),
        one_of("desired_status", DESIRED),
        one_of("placement", PLACEMENTS),
        one_of("paused_by", ("user", "idle")),
        # A name is free again as soon as its holder is asked to go.
        Index(
            "ix_instances_live_name",
            "project_id",
            "name",
            unique=True,
            postgresql_where=LIVE,
            sqlite_where=LIVE,
        ),
        Index(None, "org_id", "id"),
        Index(None, "project_id", "id"),
        # Erased ones stay for the accounts, and nothing that comes back often reads them.
        Index("ix_instances_hosted", "cell_id", postgresql_where=_HELD, sqlite_where=_HELD),
        Index(
            "ix_instances_org_hosted",
            *("org_id", "id"),
            postgresql_where=_HELD,
            sqlite_where=_HELD,
        ),
        Index(
            "ix_instances_project_hosted",
            *("project_id", "id"),
            postgresql_where=_HELD,
            sqlite_where=_HELD,
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    # NULL once it is erased and its project deleted: what it used is still to be accounted for.
    project_id: Mapped[str | None] = mapped_column(ForeignKey("projects.id"))
    team_id: Mapped[str] = owning_team()
    name: Mapped[str]
    engine: Mapped[str]
    engine_version: Mapped[str]
    size: Mapped[str]
    region: Mapped[str]
    placement: Mapped[str] = mapped_column(default="shared")
    storage_bytes: Mapped[int] = mapped_column(BigInteger)
    maintenance_window: Mapped[dict[str, Any] | None] = mapped_column(Json)
    status: Mapped[str] = mapped_column(default="requested", index=True)
    status_reason: Mapped[str | None]
    # What its cell tells of an engine that runs; the other is what became of a request.
    cell_reason: Mapped[str | None]
    desired_status: Mapped[str] = mapped_column(default="running")
    paused_by: Mapped[str | None]
    branch_of: Mapped[str | None]
    host: Mapped[str] = mapped_column(unique=True)
    port: Mapped[int]
    cell_id: Mapped[str] = mapped_column(ForeignKey("cells.id"))
    requested_by: Mapped[str | None]
    purge_after: Mapped[datetime | None]
    ready_at: Mapped[datetime | None]
    updated_at: Mapped[datetime] = mapped_column(default=DatabaseClock(), onupdate=DatabaseClock())
    credentials_generation: Mapped[int] = mapped_column(default=0)
    credentials_overlap_until: Mapped[datetime | None]

    def _move(
        self, verb: str, allowed: frozenset[str] | set[str], status: str, hint: str = ""
    ) -> None:
        if self.status not in allowed:
            raise StateConflict(f"cannot {verb} an instance that is {self.status}{hint}")
        self.status = status
        self.status_reason = None
        if status not in _ENGINE_RUNS:
            self.cell_reason = None

    def _refuse_gone(self, verb: str) -> None:
        """A delete that failed stays a delete: nothing brings the instance back to life."""
        if self.desired_status in GONE:
            going = f" and to be {self.desired_status}" if self.status == "failed" else ""
            raise StateConflict(f"cannot {verb} an instance that is {self.status}{going}")

    # What callers ask.

    @property
    def place(self) -> RecordPlace:
        return RecordPlace(self.team_id, self.project_id, self.id)

    def pause(self) -> None:
        self._move("pause", {"running"}, "pausing")
        self.desired_status = "paused"

    def resume(self) -> None:
        self._move("resume", {"paused"}, "resuming")
        self.desired_status = "running"

    def change(self, *, waits: bool) -> None:
        """Allow a change: any live instance, or one that runs or failed when the cell must act.

        One that failed for want of storage runs again with more.
        """
        if waits:
            self._interrupt("change", "resizing")
        else:
            self._refuse_gone("change")

    def restore(self) -> None:
        """Replace its data by that of a backup; it may be what makes one that failed run again."""
        hint = "; resume it first" if self.status == "paused" else ""
        self._interrupt("restore", "restoring", hint)

    def recover(self, reason: str) -> None:
        """Bring its data back, which was lost; it is to be as it was, running or paused."""
        self._refuse_gone("recover")
        self._move("recover", {"running", "paused", "failed"}, "restoring")
        self.status_reason = reason

    def _interrupt(self, verb: str, status: str, hint: str = "") -> None:
        if self.status == "failed":
            self._refuse_gone(verb)
        # Without data there is nothing to change.
        kept = self.ready_at is not None
        self._move(verb, {"running", "failed"} if kept else {"running"}, status, hint)
        # It failed to be resumed, or to wake, if it was to be paused.
        self.desired_status = "running"

    @property
    def needs_room(self) -> bool:
        """Whether a change makes it run that has given its CPU and memory back."""
        failed_to_resume = self.status == "failed" and self.desired_status == "paused"
        return failed_to_resume and self.paused_by != "idle"

    def check_backed_up(self) -> None:
        """StateConflict unless there is data, and nothing under way that changes it."""
        if self.status == "failed":
            self._refuse_gone("back up")
        if self.ready_at is None or self.status not in {"running", "paused", "failed"}:
            raise StateConflict(f"cannot back up an instance that is {self.status}")

    def check_branchable(self) -> None:
        """StateConflict unless there is data that a branch could begin with."""
        if self.status not in {"running", "paused"}:
            raise StateConflict(f"cannot branch an instance that is {self.status}")

    def check_running(self, verb: str) -> None:
        """StateConflict unless a login works now."""
        if self.status != "running":
            hint = "; resume it first" if self.status == "paused" else ""
            raise StateConflict(f"cannot {verb} an instance that is {self.status}{hint}")

    def delete(self, purge_after: datetime | None) -> None:
        """Stop it and keep its data, if it has any, until `purge_after` (None: until erased).

        A delete that failed keeps its first time; an erasure that failed is not taken back.
        """
        if self.desired_status == "erased":
            self._refuse_gone("delete")
        if self.desired_status == "deleted":
            purge_after = self.purge_after
        gone = {"deleting", "deleted", "erasing", "erased"}
        self._move("delete", set(STATUSES) - gone, "deleting")
        if self.desired_status == "paused":
            self.paused_by = self.paused_by or "user"
        elif self.desired_status == "running":
            # Being resumed, it was to run.
            self.paused_by = None
        self.desired_status = "deleted"
        self.purge_after = purge_after

    def undelete(self, now: datetime) -> None:
        """Take a delete back: it is to be as it was. One that was idle is to run."""
        if self.status == "deleted" and self.ready_at is None:
            raise StateConflict(
                "cannot undelete an instance that is deleted and never ran: it has no data; "
                "order a new one"
            )
        if self.status == "deleted" and self.purge_after and self.purge_after <= now:
            until = self.purge_after.isoformat(timespec="seconds")
            raise StateConflict(
                f"cannot undelete an instance that is deleted and was kept until {until}"
            )
        hint = "; wait until it is deleted" if self.status == "deleting" else ""
        self._move("undelete", {"deleted"}, "resuming", hint)
        self.desired_status = "paused" if self.paused_by == "user" else "running"
        self.purge_after = None

    def erase(self) -> None:
        """Destroy it and its data now, whatever it does."""
        self._move("erase", set(ERASABLE), "erasing")
        self.desired_status = "erased"

    # What workflows find.

    def provisioning(self) -> None:
        self._move("provision", {"requested", "provisioning"}, "provisioning")

    def became_running(self, at: datetime) -> None:
        """Usable: a real login worked at that moment."""
        usable = {"provisioning", "resuming", "resizing", "restoring", "pausing", "paused"}
        self._refuse_gone("run")
        self._move("run", usable | {"failed", "running"}, "running")
        self.desired_status = "running"
        self.paused_by = None
        self.ready_at = self.ready_at or at

    def is_held_up(self, reason: str) -> None:
        """What it waits for is tried again; the owner reads why."""
        if self.status in TRANSITIONAL and self.status_reason != reason:
            self.status_reason = reason

    def became_paused(self, by: str) -> None:
        self._refuse_gone("record as paused")
        pausable = {"pausing", "running", "resuming", "restoring", "failed"}
        self._move("record as paused", pausable, "paused")
        self.desired_status = "paused"
        self.paused_by = by

    def became_failed(self, reason: str) -> None:
        """Out of service; `reason` is a sentence its owner can act on."""
        self._move("fail", set(STATUSES) - {"deleted", "erased"}, "failed")
        self.status_reason = reason

    def became_deleted(self) -> None:
        self._move("record as deleted", {"deleting"}, "deleted")

    def became_erased(self) -> None:
        self._move("record as erased", {"erasing"}, "erased")


def told_of(instance: Instance) -> str | None:
    """All that is to be said of its status."""
    said = dict.fromkeys(filter(None, (instance.status_reason, instance.cell_reason)))
    return "; ".join(said) or None


# As a literal, without which a partial index is of no use.
HOSTED: Final = Instance.status != bindparam(None, "erased", literal_execute=True)
"""That it is not erased: its cell has its data, or will have."""


_ADDED: Final = RecordInsertion(Instance)


def add(db: Session, instance: Instance) -> None:
    """Write it at once: the session's own way takes a seventh of all that an order costs."""
    _ADDED.add(db, instance)


def fetch(db: Session, org_id: str, instance_id: str, *, lock: bool = False) -> Instance:
    """The organization's instance; `lock` holds its row until the transaction ends."""
    instance = by_key(db, Instance, instance_id, lock=lock)
    if instance is None or instance.org_id != org_id:
        raise RecordNotFound("instance not found")
    return instance


@functools.cache
def _pages(filters: frozenset[str], in_scope: bool, is_first: bool) -> Prepared:
    """The query of such pages, built once. Rows of columns are had for half of what records are."""
    columns = (getattr(Instance, each.key) for each in Instance.__mapper__.column_attrs)
    rows: Select[Any] = select(*columns).where(Instance.org_id == bindparam("org_id"))
    rows = rows.where(*(getattr(Instance, name) == bindparam(name) for name in sorted(filters)))
    if "status" not in filters:
        rows = rows.where(HOSTED, Instance.status.not_in(GONE))
    if in_scope:
        parts = {"team_id": "teams", "project_id": "projects", "id": "instances"}
        rows = rows.where(or_(*(is_among(getattr(Instance, a), b) for a, b in parts.items())))
    if not is_first:
        rows = rows.where(Instance.id < bindparam("after"))
    return Prepared(rows.order_by(Instance.id.desc()).limit(bindparam("limit", type_=Integer)))


def page(
    db: Session,
    org_id: str,
    *,
    scope: Within,
    limit: int,
    after: str | None,
    **filters: str | None,
) -> Page[Any]:
    """Those in the scope, newest first; deleted and erased ones only where asked for.

    `filters` are values of `status`, `engine`, `project_id`, `name` and `branch_of`. What is found
    has the columns of an Instance, and cannot be changed.
    """
    given = {name: value for name, value in filters.items() if value is not None}
    query = _pages(frozenset(given), scope is not None, after is None)
    asked: dict[str, Any] = {"org_id": org_id, "after": after, "limit": limit + 1}
    asked |= {name: list(ids) for name, ids in vars(scope or NOWHERE).items()}
    return pages.cut(query.rows(db, **asked, **given), "id", limit)


def names(db: Session, org_id: str, ids: Collection[str]) -> dict[str, str]:
    """Of the organization's instances with these ids, erased ones too."""
    rows = select(Instance.id, Instance.name).where(Instance.org_id == org_id, Instance.id.in_(ids))
    return dict(db.execute(rows).tuples().all())


def in_statuses(db: Session, org_id: str, statuses: Iterable[str]) -> list[Instance]:
    """Every instance of the organization in one of these statuses, oldest first; none is erased."""
    rows = select(Instance).where(Instance.org_id == org_id, HOSTED, Instance.status.in_(statuses))
    return list(db.scalars(rows.order_by(Instance.id)))


def hosted_by_status(db: Session, org_id: str, which: ColumnElement[bool]) -> dict[str, int]:
    """How many of the organization's that it is true of there are in each status but erased."""
    rows = select(Instance.status, func.count()).group_by(Instance.status)
    rows = rows.where(Instance.org_id == org_id, which, HOSTED)
    return dict(db.execute(rows).tuples().all())


def of_cell(db: Session, cell_id: str) -> list[Instance]:
    """All that the cell hosts, whoever they belong to; erased ones are there no more."""
    return list(db.scalars(select(Instance).where(Instance.cell_id == cell_id, HOSTED)))


def counted(db: Session) -> list[tuple[str, str, int]]:
    """How many there are of each engine in each status but erased, whoever they belong to."""
    rows = select(Instance.engine, Instance.status, func.count()).where(HOSTED)
    return list(db.execute(rows.group_by(Instance.engine, Instance.status)).tuples())
