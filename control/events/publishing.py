"""Publishing: an event of something that happened, and the alert that it raises or resolves."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from control.policy import alerts as policy
from storage.events import alerts, events
from storage.instances.instances import Instance


def publish(
    db: Session, org_id: str, kind: str, data: Mapping[str, Any], instance: Instance | None = None
) -> None:
    """With the transaction that made it so; `data` holds no credential."""
    events.append(db, org_id, kind, dict(data), instance.id if instance else None)
    if instance is None:
        return
    if kind in policy.RESOLVING:
        alerts.resolve(db, instance, policy.RESOLVING[kind])
    raised = policy.RAISING[kind](data) if kind in policy.RAISING else None
    if raised is not None:
        title = raised.title.format(name=instance.name)
        reason = data["reason"]
        alerts.raise_(db, instance, raised.kind, raised.severity, title=title, reason=reason)
