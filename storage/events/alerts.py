"""Alerts: what the people of an organization should look at, until it is over."""

from collections.abc import Collection
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from sqlalchemy import (
    ColumnElement,
    ForeignKey,
    Index,
    and_,
    delete,
    false,
    func,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage import identifiers, pages
from storage.access.organizations import Organization
from storage.access.scopes import RecordPlace, Within
from storage.access.teams import Team
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
_OF_ORGANIZATIONS: Final = text("resolved_at IS NULL AND team_id IS NULL")
_MAIL_DUE: Final = text("is_mail_due")
Concerned: TypeAlias = Instance | Team | Organization
"""What an alert is about."""


class AlertSubject(NamedTuple):
    """The ids of what an alert is about; no team: the organization itself."""

    org_id: str
    team_id: str | None = None
    instance_id: str | None = None

    @classmethod
    def of(cls, concerned: Concerned) -> "AlertSubject":
        if isinstance(concerned, Instance):
            return cls(concerned.org_id, concerned.team_id, concerned.id)
        if isinstance(concerned, Team):
            return cls(concerned.org_id, concerned.id)
        return cls(concerned.id)


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
        Index(
            "ix_alerts_unresolved_of_organizations",
            "org_id",
            "kind",
            postgresql_where=_OF_ORGANIZATIONS,
            sqlite_where=_OF_ORGANIZATIONS,
        ),
        Index("ix_alerts_mail_due", "org_id", postgresql_where=_MAIL_DUE, sqlite_where=_MAIL_DUE),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    # NULL where it is about the organization itself: no default would do.
    team_id: Mapped[str | None] = mapped_column(ForeignKey("teams.id"))
    # NULL where it is about the team itself, or the organization.
    instance_id: Mapped[str | None] = mapped_column(ForeignKey("instances.id"))
    kind: Mapped[str]
    # What tells alerts of the same kind about the same apart, such as a cell or an API key.
    cause: Mapped[str] = mapped_column(default="", server_default="")
    severity: Mapped[str]
    title: Mapped[str]
    reason: Mapped[str]
    occurrences: Mapped[int] = mapped_column(default=1)
    last_at: Mapped[datetime]
    resolved_at: Mapped[datetime | None]
    acknowledged_at: Mapped[datetime | None]
    acknowledged_by: Mapped[str | None]
    # As which it has been told of by an event.
    told_severity: Mapped[str | None]
    is_mail_due: Mapped[bool] = mapped_column(default=False, server_default=false())

    @property
    def subject(self) -> AlertSubject:
        return AlertSubject(self.org_id, self.team_id, self.instance_id)

    def acknowledge(self, by: str, at: datetime) -> None:
        """Acknowledging twice keeps the first."""
        if self.acknowledged_at is None:
            self.acknowledged_at, self.acknowledged_by = at, by

    def occurred_again(self, severity: str, title: str, reason: str, at: datetime) -> None:
        self.severity = max(self.severity, severity, key=SEVERITIES.index)
        self.title, self.reason, self.last_at = title, reason, at
        self.occurrences += 1


def raise_(
    db: Session,
    concerned: Concerned,
    kind: str,
    severity: str,
    *,
    title: str,
    reason: str,
    cause: str = "",
) -> Alert:
    """A new one, or another occurrence of one that nobody has acknowledged yet."""
    moment, subject = now(db), AlertSubject.of(concerned)
    about = *_open(subject), Alert.kind == kind, Alert.cause == cause
    rows = select(Alert).where(*about, Alert.acknowledged_at.is_(None)).order_by(Alert.id.desc())
    known = db.scalars(rows.limit(1).with_for_update()).first()
    if known is not None:
        known.occurred_again(severity, title, reason, moment)
        return known
    made = Alert(
        id=identifiers.new("alert_"),
        **subject._asdict(),
        kind=kind,
        cause=cause,
        severity=severity,
        title=title,
        reason=reason,
        last_at=moment,
        created_at=moment,
    )
    db.add(made)
    return made


def resolve(
    db: Session, concerned: Concerned, kinds: Collection[str], *, cause: str | None = None
) -> list[Alert]:
    """Those of these kinds, of this cause or of any, are over; returns them."""
    rows = select(Alert).where(*_open(AlertSubject.of(concerned)), Alert.kind.in_(kinds))
    if cause is not None:
        rows = rows.where(Alert.cause == cause)
    over = list(db.scalars(rows.order_by(Alert.id).with_for_update()))
    if over:
        moment = now(db)
        for each in over:
            each.resolved_at = moment
        db.flush()
    return over


def times(db: Session, subject: AlertSubject, kind: str) -> int:
    """How often it has happened since it was over the last time, acknowledged or not."""
    rows = select(func.coalesce(func.sum(Alert.occurrences), 0))
    return int(db.scalars(rows.where(*_open(subject), Alert.kind == kind)).one())


def explaining(
    db: Session, instance: Instance, kinds: Collection[str], cell_cause: str
) -> Alert | None:
    """A critical alert of these kinds about the instance, or about its team and its cell."""
    of_team = and_(Alert.instance_id.is_(None), Alert.team_id == instance.team_id)
    rows = select(Alert).where(
        *(Alert.org_id == instance.org_id, Alert.kind.in_(kinds), Alert.severity == "critical"),
        Alert.resolved_at.is_(None),
        or_(Alert.instance_id == instance.id, of_team),
        Alert.cause.in_(("", cell_cause)),
    )
    return db.scalars(rows.order_by(Alert.id).limit(1).with_for_update()).first()


def open_of(db: Session, kinds: Collection[str]) -> list[Alert]:
    """Those of every organization that are not over."""
    rows = select(Alert).where(Alert.kind.in_(kinds), Alert.resolved_at.is_(None))
    return list(db.scalars(rows.order_by(Alert.id)))


def open_about(db: Session, subject: AlertSubject, kind: str, cause: str) -> list[Alert]:
    """Those about exactly this that are not over, acknowledged or not."""
    rows = select(Alert).where(*_open(subject), Alert.kind == kind, Alert.cause == cause)
    return list(db.scalars(rows.order_by(Alert.id)))


def is_open(
    db: Session, subject: AlertSubject, kind: str, cause: str, severities: Collection[str]
) -> bool:
    """Whether there is one that is not over, of one of these severities, acknowledged or not."""
    rows = select(Alert.id).where(*_open(subject), Alert.kind == kind, Alert.cause == cause)
    return db.scalars(rows.where(Alert.severity.in_(severities)).limit(1)).first() is not None


def orgs_with_mail_due(db: Session, mailed_before: datetime, limit: int) -> list[str]:
    """Organizations with alerts to look at for a letter, and none sent since that moment.

    Where one is critical, none that told of a critical one.
    """
    any_at, critical_at = Organization.alerts_mailed_at, Organization.critical_alerts_mailed_at
    is_due = or_(any_at.is_(None), any_at <= mailed_before)
    is_urgent = or_(critical_at.is_(None), critical_at <= mailed_before)
    rows = select(Alert.org_id).join(Organization, Organization.id == Alert.org_id).distinct()
    rows = rows.where(Alert.is_mail_due, or_(is_due, (Alert.severity == "critical") & is_urgent))
    return list(db.scalars(rows.order_by(Alert.org_id).limit(limit)))


def take_mail_due(db: Session, org_id: str) -> list[Alert]:
    """Those of the organization that are due, oldest first; from now on they are not."""
    rows = select(Alert).where(Alert.org_id == org_id, Alert.is_mail_due)
    due = list(db.scalars(rows.order_by(Alert.id).with_for_update()))
    for each in due:
        each.is_mail_due = False
    return due


def quiet_since(db: Session, kind: str, before: datetime, limit: int) -> list[Alert]:
    """Those of every organization that have not happened since that moment and are not over."""
    rows = select(Alert).where(Alert.kind == kind, Alert.resolved_at.is_(None))
    return list(db.scalars(rows.where(Alert.last_at < before).order_by(Alert.id).limit(limit)))


def fetch(db: Session, org_id: str, alert_id: str, *, lock: bool = False) -> Alert:
    """An alert of that organization; `lock` holds it until the commit."""
    found = by_key(db, Alert, alert_id, lock=lock)
    if found is None or found.org_id != org_id:
        raise RecordNotFound("alert not found")
    return found


def place(db: Session, alert: Alert) -> RecordPlace | None:
    """That of the instance that it is about, or of the team; None: all of the organization."""
    if alert.team_id is None:
        return None
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
    with_resolved: bool = True,
    limit: int,
    after: str | None,
    **filters: str | None,
) -> Page[Alert]:
    """Those of these severities, newest first; `filters` are values of `kind`, `instance_id`."""
    rows = select(Alert).where(Alert.org_id == org_id, Alert.severity.in_(severities))
    if not with_acknowledged:
        rows = rows.where(Alert.acknowledged_at.is_(None))
    if not with_resolved:
        rows = rows.where(Alert.resolved_at.is_(None))
    for name, value in filters.items():
        if value is not None:
            rows = rows.where(getattr(Alert, name) == value)
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
    theirs = Alert.team_id == team.id, Alert.instance_id.is_(None)
    db.execute(delete(Alert).where(Alert.org_id == team.org_id, *theirs))


def forget_old(db: Session, before: datetime, limit: int) -> int:
    """Delete at most `limit` of those first raised before that moment; how many went."""
    return delete_oldest(db, Alert.id, "alert_", before, limit)


def _open(subject: AlertSubject) -> tuple[ColumnElement[bool], ...]:
    """What is unresolved and about exactly this."""
    if subject.instance_id is not None:
        exactly: tuple[ColumnElement[bool], ...] = (Alert.instance_id == subject.instance_id,)
    elif subject.team_id is not None:
        exactly = Alert.team_id == subject.team_id, Alert.instance_id.is_(None)
    else:
        exactly = Alert.team_id.is_(None), Alert.instance_id.is_(None)
    return Alert.org_id == subject.org_id, *exactly, Alert.resolved_at.is_(None)
