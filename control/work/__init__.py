"""Work that outlives a request: durable operations of named steps, on the database that is there.

    @workflow("instances.pause", deadline_s=300, on_failure=pause_failed)
    def pause(op: Operation) -> None:
        op.step("pause", lambda: cell.pause(instance_id, key=op.key("pause"), lease=op.lease))
        op.step_in_transaction("record", record_paused)

`enqueue` puts an operation into the caller's own transaction; a `Worker` runs it to its end.
"""

from control.work.errors import Again, GiveUp, LeaseLost
from control.work.operation import Operation
from control.work.registry import Registry, collect, registry_of
from control.work.schedules import Schedule
from control.work.worker import Worker
from control.work.workflow import Workflow, enqueue, workflow

__all__ = [
    "Again",
    "GiveUp",
    "LeaseLost",
    "Operation",
    "Registry",
    "Schedule",
    "Worker",
    "Workflow",
    "collect",
    "enqueue",
    "registry_of",
    "workflow",
]
