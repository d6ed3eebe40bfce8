"""Alerts: what the people of an organization should look at, until it is over."""

from collections.abc import Collection
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, ForeignKey, Index, delete, or_, select, text, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.access.scopes import RecordPlace, Within
from storage.access.teams import Team, owning_team
from storage.columns import Owned, Record, one_of
from storage.database import now
from storage.errors import RecordNotFound
from storage.instances import in_scope, instances
from storage.instances.instances import Instance
from storage.lookups import by_key, delete_oldest
from storage.pages import Page

SEVERITIES: Final = ("info", "warning", "critical")
"""From the least to the most severe."""
_UNRESOLVED: Final = text("resolved_at IS NULL")
_OF_TEAMS: Final = text("resolved_at IS NULL AND instance_id IS NULL")


class Alert(Owned, Record):
    """What happens again, before anybody has acknowledged it or it is over, is one alert."""

    __tablename__ = "alerts"
    __table_args__ = (
        one_of("severity", SEVERITIES),
        Index(None, "org_id", "id"),
        Index(
            "ix_alerts_unresolved",
            "instance_id",
            "kind",
            postgresql_where=_UNRESOLVED,
            sqlite_where=_UNRESOLVED,
        ),
        Index(
            "ix_alerts_unresolved_of_teams",
            "team_id",
            "kind",
            postgresql_where=_OF_TEAMS,
            sqlite_where=_OF_TEAMS,
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    team_id: Mapped[str] = owning_team()
    # NULL where it is about the team itself.
    instance_id: Mapped[str | None] = mapped_column(ForeignKey("instances.id"))
    kind: Mapped[str]
    severity: Mapped[str]
    title: Mapped[str]
    reason: Mapped[str]
    occurrences: Mapped[int] = mapped_column(default=1)
    last_at: Mapped[datetime]
    resolved_at: Mapped[datetime | None]
    acknowledged_at: Mapped[datetime | None]
    acknowledged_by: Mapped[str | None]

    def acknowledge(self, by: str, at: datetime) -> None:
        """Acknowledging twice keeps the first."""
        if self.acknowledged_at is None:
            self.acknowledged_at, self.acknowledged_by = at, by

    def occurred_again(self, severity: str, title: str, reason: str, at: datetime) -> None:
        self.severity = max(self.severity, severity, key=SEVERITIES.index)
        self.title, self.reason, self.last_at = title, reason, at
        self.occurrences += 1


def raise_(
    db: Session, subject: Instance | Team, kind: str, severity: str, *, title: str, reason: str
) -> Alert:
    """A new one, or another occurrence of one that nobody has acknowledged yet."""
    moment = now(db)
    about = *_about(subject), Alert.kind == kind, Alert.acknowledged_at.is_(None)
    rows = select(Alert).where(*about).order_by(Alert.id.desc())
    known = db.scalars(rows.limit(1).with_for_update()).first()
    if known is not None:
        known.occurred_again(severity, title, reason, moment)
        return known
    made = Alert(
        id=identifiers.new("alert_"),
        org_id=subject.org_id,
        team_id=subject.place.team_id,
        instance_id=subject.id if isinstance(subject, Instance) else None,
        kind=kind,
        severity=severity,
        title=title,
        reason=reason,
        last_at=moment,
    )
    db.add(made)
    return made


def resolve(db: Session, subject: Instance | Team, kinds: Collection[str]) -> None:
    """Of the instance, or of the team itself, those of these kinds are over."""
    over = update(Alert).where(*_about(subject), Alert.kind.in_(kinds))
    db.execute(over.values(resolved_at=now(db)))


def fetch(db: Session, org_id: str, alert_id: str, *, lock: bool = False) -> Alert:
    """An alert of that organization; `lock` holds it until the commit."""
    found = by_key(db, Alert, alert_id, lock=lock)
    if found is None or found.org_id != org_id:
        raise RecordNotFound("alert not found")
    return found


def place(db: Session, alert: Alert) -> RecordPlace:
    """That of the instance that it is about; without one, of the team itself."""
    if alert.instance_id is None:
        return RecordPlace(alert.team_id)
    return instances.fetch(db, alert.org_id, alert.instance_id).place


def at_least(severity: str) -> tuple[str, ...]:
    """The severities that are no less than this one."""
    return SEVERITIES[SEVERITIES.index(severity) :]


def page(
    db: Session,
    org_id: str,
    *,
    scope: Within,
    severities: Collection[str],
    with_acknowledged: bool,
    limit: int,
    after: str | None,
) -> Page[Alert]:
    """Those of these severities, newest first."""
    rows = select(Alert).where(Alert.org_id == org_id, Alert.severity.in_(severities))
    if not with_acknowledged:
        rows = rows.where(Alert.acknowledged_at.is_(None))
    if scope is not None:
        theirs = Alert.instance_id.in_(in_scope.ids(org_id, scope))
        rows = rows.where(or_(Alert.team_id.in_(scope.teams), theirs))
    return pages.keyset(db, rows, Alert.id, limit=limit, after=after)


def follow_project(db: Session, org_id: str, project_id: str, team_id: str) -> None:
    """Alerts about the instances of the project belong to the team that it belongs to now.

    After the instances themselves: what holds one of them has raised its alert by then.
    """
    theirs = select(Instance.id).where(Instance.org_id == org_id, Instance.project_id == project_id)
    rows = update(Alert).where(Alert.org_id == org_id, Alert.instance_id.in_(theirs))
    db.execute(rows.values(team_id=team_id))


def forget(db: Session, instance: Instance) -> None:
    """All of the instance's: it is erased."""
    gone = delete(Alert).where(Alert.org_id == instance.org_id, Alert.instance_id == instance.id)
    db.execute(gone)


def forget_team(db: Session, team: Team) -> None:
    """All that are about the team, which is to be deleted."""
    db.execute(delete(Alert).where(Alert.org_id == team.org_id, *_of(team)))


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those first raised before that moment; how many went."""
    return delete_oldest(db, Alert.id, "alert_", before, limit)


def _about(subject: Instance | Team) -> tuple[ColumnElement[bool], ...]:
    """What is unresolved."""
    return Alert.org_id == subject.org_id, *_of(subject), Alert.resolved_at.is_(None)


def _of(subject: Instance | Team) -> tuple[ColumnElement[bool], ...]:
    if isinstance(subject, Instance):
        return (Alert.instance_id == subject.id,)
    return Alert.team_id == subject.id, Alert.instance_id.is_(None)
