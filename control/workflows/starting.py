"""Starting a workflow on an instance, and which one each status waits for."""

from typing import Any, Final

from sqlalchemy.orm import Session

from control.work import queue
from storage.instances import Instance
from storage.work import Work

PROVISION: Final = "instances.provision"
PAUSE: Final = "instances.pause"
RESUME: Final = "instances.resume"
RESIZE: Final = "instances.resize"
CONVERGE: Final = "instances.converge"
DELETE: Final = "instances.delete"
ERASE: Final = "instances.erase"

BY_STATUS: Final = {
    "requested": PROVISION,
    "provisioning": PROVISION,
    "pausing": PAUSE,
    "resuming": RESUME,
    "resizing": RESIZE,
    "deleting": DELETE,
    "erasing": ERASE,
}
"""The workflow that leads out of each transitional status."""


def start(db: Session, kind: str, instance: Instance, **args: Any) -> Work:
    """Start a workflow in the instance's lane, with the transaction that changed the instance."""
    subject = {"org_id": instance.org_id, "instance_id": instance.id}
    return queue.enqueue(db, kind, instance.id, {**subject, **args})
