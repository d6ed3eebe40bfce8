"""Networks: an allow-list or a bundle of client CAs that was replaced, told to the cell."""

from sqlalchemy.orm import Session

from control.cells.client import CellUnavailable
from control.work import Operation, workflow
from control.workflows.instances.subjects import specification
from storage.instances import instances
from storage.instances.instances import GONE
from storage.network import networks
from storage.network.networks import Network


def not_applied(op: Operation, db: Session, reason: str) -> None:
    _network(op, db).is_held_up(f"{reason}; replace the network settings to try again")


@workflow("instances.network", deadline_s=86_400, on_failure=not_applied, joins=True)
def apply_network(op: Operation) -> None:
    """In the instance's lane, so that it comes after a provisioning that began without it."""

    def tell() -> int | None:
        with op.database.read() as db:
            instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"])
            if instance.desired_status in GONE:
                return None
            wanted = specification(db, op.services, instance)
            version = networks.of_instance(db, instance).version
            cell = op.services.cells.for_instance(db, instance)
        try:
            cell.put(instance.id, wanted, key=op.key("put"), lease=op.lease)
        except CellUnavailable as error:
            with op.database.write() as db:
                _network(op, db).is_held_up(f"{error.detail}; it will be tried again")
            raise
        return version

    told: int | None = op.step("put", tell)
    if told is not None:
        op.step_in_transaction("record", lambda db: _record(op, db, told))


def _record(op: Operation, db: Session, version: int) -> None:
    _network(op, db).became_applied(version)


def _network(op: Operation, db: Session) -> Network:
    instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"], lock=True)
    return networks.of_instance(db, instance)
