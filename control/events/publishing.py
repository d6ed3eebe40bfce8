"""Publishing: an event of something that happened, and the alert that it raises or resolves."""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy.orm import Session

from control.policy import alerts as policy
from storage.events import alerts, events
from storage.instances.instances import GONE, Instance


def publish(
    db: Session, org_id: str, kind: str, data: Mapping[str, Any], instance: Instance | None = None
) -> None:
    """With the transaction that made it so; `data` holds no credential."""
    events.append(db, org_id, kind, dict(data), instance.id if instance else None)
    if instance is None:
        return
    resolve(db, instance, policy.resolved_by(kind, data))
    raised = policy.RAISING[kind](data) if kind in policy.RAISING else None
    # What is left of the work of an instance that is gone needs nobody to look at it.
    if raised is not None and instance.desired_status not in GONE:
        title = raised.title.format(name=instance.name)
        reason = data["reason"]
        alerts.raise_(db, instance, raised.kind, raised.severity, title=title, reason=reason)


def resolve(db: Session, instance: Instance, kinds: Collection[str]) -> None:
    """For what is over without an event, such as what was turned off."""
    if kinds:
        alerts.resolve(db, instance, kinds)
