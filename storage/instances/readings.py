"""Readings: what each instance uses by the last word of its cell, and its counters."""

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    Integer,
    Select,
    and_,
    bindparam,
    delete,
    func,
    or_,
    select,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import pages
from storage.access.projects import Project
from storage.access.scopes import NOWHERE, Within
from storage.access.teams import Team
from storage.columns import Owned, Record, is_among
from storage.data.backups import COMPLETED, Backup
from storage.data.recovery_windows import RecoveryWindow
from storage.instances.instances import GONE, HOSTED, Instance
from storage.lookups import by_key
from storage.pages import Page
from storage.prepared import Prepared

COUNT_MAX: Final = 2**53
"""A counter stays there: what a cell says must not become more than a column or a float holds."""

SAME_START: Final = timedelta(seconds=2)
"""A cell that starts anew may tell a little another start of an engine that went on."""


class Reading(Owned, Record):
    """One of each instance: sizes as of `seen_at`, and counters that never fall.

    A cell's own counters begin anew with the engine or with the cell. `…_seen` is what it said
    last, from which the next share is counted. `statements` is NULL where an engine tells of none.
    """

    __tablename__ = "readings"

    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), index=True)
    seen_at: Mapped[datetime]
    cell_status: Mapped[str]
    started_at: Mapped[datetime | None]
    connections: Mapped[int]
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    stored_bytes: Mapped[int] = mapped_column(BigInteger)
    cpu_s: Mapped[float]
    cpu_s_seen: Mapped[float]
    restarts: Mapped[int] = mapped_column(BigInteger)
    restarts_seen: Mapped[int] = mapped_column(BigInteger)
    statements: Mapped[int | None] = mapped_column(BigInteger)
    statements_seen: Mapped[int] = mapped_column(BigInteger)

    def was_told(self, told: Mapping[str, Any], at: datetime) -> None:
        """By its cell, of which the document of the cell tells."""
        self.seen_at, self.cell_status = at, told["status"]
        told_start = told.get("started_at")
        began = datetime.fromisoformat(told_start) if told_start else None
        if began is None or self.started_at is None or abs(began - self.started_at) > SAME_START:
            self.statements_seen = 0
        self.started_at = began
        self.connections = told.get("connections") or 0
        self.memory_bytes = told.get("memory_bytes") or 0
        self.stored_bytes = told.get("storage_bytes") or 0
        cpu_s = float(told.get("cpu_s") or 0)
        self.cpu_s = min(COUNT_MAX, self.cpu_s + _since(cpu_s, self.cpu_s_seen))
        self.cpu_s_seen = cpu_s
        restarts = told.get("restarts") or 0
        self.restarts = min(COUNT_MAX, self.restarts + _since(restarts, self.restarts_seen))
        self.restarts_seen = restarts
        self._count(told.get("statements"))

    def _count(self, statements: int | None) -> None:
        """None: not told, as before a cell that has just started has asked the engine."""
        if statements is not None:
            counted = (self.statements or 0) + _since(statements, self.statements_seen)
            self.statements = min(COUNT_MAX, counted)
            self.statements_seen = statements


def _since(told: Any, seen: Any) -> Any:
    """What came since then; a counter that fell began anew."""
    return told - seen if told >= seen else told


def note(db: Session, instance: Instance, told: Mapping[str, Any], at: datetime) -> None:
    """What the cell tells of the instance at that moment."""
    reading = by_key(db, Reading, instance.id)
    if reading is None:
        reading = Reading(
            instance_id=instance.id,
            org_id=instance.org_id,
            cpu_s=0.0,
            cpu_s_seen=0.0,
            restarts=0,
            restarts_seen=0,
            statements=None,
            statements_seen=0,
        )
        db.add(reading)
    reading.was_told(told, at)


def forget(db: Session, instance: Instance) -> None:
    """With an erased instance, what it used last; its hours stay (samples)."""
    db.execute(
        delete(Reading).where(Reading.org_id == instance.org_id, Reading.instance_id == instance.id)
    )


_BACKED_UP_AT: Final = (
    select(func.max(Backup.completed_at))
    .where(Backup.instance_id == Instance.id, COMPLETED)
    .correlate(Instance)
    .scalar_subquery()
)
_OF_INSTANCE: Final = (
    *("name", "engine", "engine_version", "size", "region", "placement", "status"),
    *("storage_bytes", "project_id", "team_id", "ready_at"),
)
_OF_READING: Final = (
    *("seen_at", "cell_status", "started_at", "connections", "memory_bytes", "stored_bytes"),
    *("cpu_s", "restarts", "statements"),
)
_COLUMNS: Final[Mapping[str, Any]] = {
    **{name: getattr(Instance, name) for name in _OF_INSTANCE},
    **{name: getattr(Reading, name) for name in _OF_READING},
    "project": Project.name.label("project"),
    "team": Team.name.label("team"),
    "backed_up_at": _BACKED_UP_AT.label("backed_up_at"),
    "ranges": RecoveryWindow.ranges,
}
"""By name, what a page can have of each instance."""
_OTHERS: Final[tuple[tuple[Any, Any, tuple[str, ...]], ...]] = (
    (Reading, Reading.instance_id == Instance.id, _OF_READING),
    (RecoveryWindow, RecoveryWindow.instance_id == Instance.id, ("ranges",)),
    (Project, Project.id == Instance.project_id, ("project",)),
    (Team, Team.id == Instance.team_id, ("team",)),
)
"""Where the columns of other tables come from."""
_PARTS: Final = {"team_id": "teams", "project_id": "projects", "id": "instances"}


@functools.cache
def _pages(names: tuple[str, ...], in_scope: bool, is_first: bool) -> Prepared:
    """The query of such pages, built once, without the tables that nothing is wanted of."""
    columns = [_COLUMNS[name] for name in names]
    rows: Select[Any] = select(Instance.id, *columns)
    for kind, condition, its_columns in _OTHERS:
        if not set(names).isdisjoint(its_columns):
            rows = rows.outerjoin(kind, condition)
    live = and_(HOSTED, Instance.status.not_in(GONE))
    rows = rows.where(Instance.org_id == bindparam("org_id"), live)
    if in_scope:
        rows = rows.where(or_(*(is_among(getattr(Instance, a), b) for a, b in _PARTS.items())))
    if not is_first:
        rows = rows.where(Instance.id > bindparam("after"))
    return Prepared(rows.order_by(Instance.id).limit(bindparam("limit", type_=Integer)))


def page(
    db: Session,
    org_id: str,
    columns: Sequence[str],
    *,
    scope: Within,
    limit: int,
    after: str | None,
) -> Page[Any]:
    """Instances in the scope that are not deleted, oldest first, with these of `_COLUMNS`.

    What its cell has never told of an instance is None.
    """
    query = _pages(tuple(columns), scope is not None, after is None)
    asked: dict[str, Any] = {"org_id": org_id, "after": after, "limit": limit + 1}
    asked |= {name: list(ids) for name, ids in vars(scope or NOWHERE).items()}
    return pages.cut(query.rows(db, **asked), "id", limit)
