"""Publishing: an event of something that happened, and the alert that it raises or resolves.

An alert that is new, has become more severe or is over is told of by an event too, which raises
none: it is appended here and never published.
"""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy.orm import Session

from control.policy import alerts as policy
from control.policy.alert_kinds import KINDS
from storage.access import organizations
from storage.database import now
from storage.events import alerts, events
from storage.events.alerts import Alert, AlertSubject, Concerned
from storage.instances.instances import GONE, Instance


def publish(
    db: Session,
    org_id: str,
    kind: str,
    data: Mapping[str, Any],
    concerned: Concerned | None = None,
) -> None:
    """With the transaction that made it so; `data` holds no credential.

    An event about neither an instance nor a team raises alerts about the organization.
    """
    instance = concerned if isinstance(concerned, Instance) else None
    events.append(db, org_id, kind, dict(data), instance.id if instance else None)
    over = policy.resolved_by(kind, data)
    raised = policy.RAISING[kind](data) if kind in policy.RAISING else None
    if not over and raised is None:
        return
    concerned = concerned or organizations.fetch(db, org_id)
    if over:
        resolve(db, concerned, over, cause=policy.cause_of(over[0], data) or None)
    if raised is not None:
        reason = data["reason"] if raised.reason is None else raised.reason
        title, cause = raised.title, policy.cause_of(raised.kind, data)
        raise_(db, concerned, raised.kind, raised.severity, title, reason, cause=cause)


def raise_(
    db: Session,
    concerned: Concerned,
    kind: str,
    severity: str,
    title: str,
    reason: str,
    *,
    cause: str = "",
    counts_if_explained: bool = True,
) -> None:
    """Of what no event tells, too. `title` has `{name}` where the name of what it is about goes.

    `counts_if_explained`: what something else explains has happened, and was not only looked at.
    """
    if isinstance(concerned, Instance):
        explaining = _explaining(db, concerned, kind, severity)
        if explaining is not None and counts_if_explained:
            told = explaining.severity, explaining.title, explaining.reason
            explaining.occurred_again(*told, now(db))
        # What is left of the work of an instance that is gone needs nobody to look at it.
        if explaining is not None or concerned.desired_status in GONE:
            return
    if KINDS[kind].critical_from is not None:
        times = alerts.times(db, AlertSubject.of(concerned), kind) + 1
        severity = policy.severity_of(kind, severity, times)
    title = title.replace("{name}", concerned.name)
    found = alerts.raise_(db, concerned, kind, severity, title=title, reason=reason, cause=cause)
    if found.told_severity != found.severity:
        found.told_severity, found.is_mail_due = found.severity, True
        _tell(db, policy.RAISED, found)


def resolve(
    db: Session, concerned: Concerned, kinds: Collection[str], *, cause: str | None = None
) -> None:
    """Also for what is over without an event, such as what was turned off."""
    for each in alerts.resolve(db, concerned, kinds, cause=cause) if kinds else ():
        _tell(db, policy.RESOLVED, each)


def cause_of_cell(cell_id: str) -> str:
    """The cause of alerts about a team whose instances are on that cell."""
    return f"cell:{cell_id}"


def _explaining(db: Session, instance: Instance, kind: str, severity: str) -> Alert | None:
    """The open alert about what causes it; what is critical by itself is told in any case."""
    hidden_by = KINDS[kind].hidden_by
    if not hidden_by or severity == "critical":
        return None
    return alerts.explaining(db, instance, hidden_by, cause_of_cell(instance.cell_id))


def _tell(db: Session, kind: str, alert: Alert) -> None:
    told = {
        "alert_id": alert.id,
        "kind": alert.kind,
        "severity": alert.severity,
        "title": alert.title,
        "reason": alert.reason,
        "team_id": alert.team_id,
        "instance_id": alert.instance_id,
    }
    events.append(db, alert.org_id, kind, told, alert.instance_id)
