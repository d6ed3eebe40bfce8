"""Starting a workflow on an instance."""

from typing import Any

from sqlalchemy.orm import Session

from control.work import Workflow, enqueue
from storage.instances.instances import Instance
from storage.work import Work


def start(db: Session, started: Workflow, instance: Instance, **args: Any) -> Work:
    """Start a workflow in its lane of the instance, with the transaction that changed it."""
    subject = {"org_id": instance.org_id, "instance_id": instance.id}
    return enqueue(db, started, started.lane_of(instance.id), {**subject, **args})
