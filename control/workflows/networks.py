"""Networks: an allow-list or a bundle of client CAs that was replaced, told to the cell."""

from typing import Final

from sqlalchemy.orm import Session

from control.work import Operation, workflow
from control.workflows.subjects import specification
from storage import instances, networks
from storage.instances import GONE

NETWORK: Final = "instances.network"


@workflow(NETWORK, deadline_s=86_400)
def apply(op: Operation) -> None:
    """In the instance's lane, so that it comes after a provisioning that began without it."""

    def tell() -> int | None:
        with op.database.read() as db:
            instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"])
            if instance.desired_status in GONE:
                return None
            wanted = specification(db, op.services, instance)
            version = networks.of_instance(db, instance).version
            cell = op.services.cells.for_instance(db, instance)
        cell.put(instance.id, wanted, key=op.key("put"), lease=op.lease)
        return version

    told: int | None = op.step("put", tell)
    if told is not None:
        op.step_in_transaction("record", lambda db: _record(op, db, told))


def _record(op: Operation, db: Session, version: int) -> None:
    instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"], lock=True)
    network = networks.of_instance(db, instance)
    network.applied_version = max(network.applied_version, version)
