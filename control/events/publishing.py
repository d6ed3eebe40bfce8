"""Publishing: an event of something that happened, and the alert that it raises or resolves."""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy.orm import Session

from control.policy import alerts as policy
from storage.access.teams import Team
from storage.events import alerts, events
from storage.instances.instances import GONE, Instance


def publish(
    db: Session,
    org_id: str,
    kind: str,
    data: Mapping[str, Any],
    subject: Instance | Team | None = None,
) -> None:
    """With the transaction that made it so; `data` holds no credential."""
    instance = subject if isinstance(subject, Instance) else None
    events.append(db, org_id, kind, dict(data), instance.id if instance else None)
    if subject is None:
        return
    resolve(db, subject, policy.resolved_by(kind, data))
    raised = policy.RAISING[kind](data) if kind in policy.RAISING else None
    # What is left of the work of an instance that is gone needs nobody to look at it.
    gone = instance is not None and instance.desired_status in GONE
    if raised is not None and not gone:
        title = raised.title.format(name=subject.name)
        reason = data["reason"]
        alerts.raise_(db, subject, raised.kind, raised.severity, title=title, reason=reason)


def resolve(db: Session, subject: Instance | Team, kinds: Collection[str]) -> None:
    """For what is over without an event, such as what was turned off."""
    if kinds:
        alerts.resolve(db, subject, kinds)
