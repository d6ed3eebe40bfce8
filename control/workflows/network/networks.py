"""Networks: who can connect to an instance, and by which domains, told to the cell."""

from collections.abc import Iterable
from typing import Final

from sqlalchemy.orm import Session

from control.cells.answer_checks import Observations
from control.cells.client import CellUnavailable, InstanceUnknown
from control.work import Again, Operation, workflow
from control.workflows.instances.apart import by_itself
from control.workflows.instances.starting import start
from control.workflows.instances.subjects import network_settings
from storage.database import Database
from storage.instances import instances
from storage.instances.instances import GONE, Instance
from storage.network import networks
from storage.network.networks import Network

FIRST: Final = frozenset({"requested", "provisioning"})
"""Statuses in which the cell may not have the instance yet."""
LOOK_AGAIN_S: Final = 1.0


def not_applied(op: Operation, db: Session, reason: str) -> None:
    _network(op, db).is_held_up(f"{reason}; replace the network settings to try again")


@workflow("instances.network", deadline_s=86_400, on_failure=not_applied, joins=True, beside=True)
def apply_network(op: Operation) -> None:
    """Beside what is under way with the instance: a copy or an upgrade may take hours."""

    def tell() -> int | None:
        with op.database.read() as db:
            instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"])
            if instance.desired_status in GONE:
                return None
            network = networks.of_instance(db, instance)
            wanted = network_settings(db, instance, network)
            cell = op.services.cells.for_instance(db, instance)
        # Another answer for each version: what an earlier try told may be older by now.
        key = op.key(f"tell {network.cell_version}")
        try:
            cell.set_network(instance.id, wanted, key=key, lease=op.lease)
        except InstanceUnknown:
            if instance.status in FIRST:
                # It was begun with what held then.
                raise Again(LOOK_AGAIN_S) from None
            raise
        except CellUnavailable as error:
            with op.database.write() as db:
                _network(op, db).is_held_up(f"{error.detail}; it will be tried again")
            raise
        return network.version

    told: int | None = op.step("put", tell)
    if told is not None:
        op.step_in_transaction("record", lambda db: _network(op, db).became_applied(told))


def overtake(
    database: Database, cell_id: str, known: Iterable[Instance], seen: Observations
) -> None:
    """Tell a cell anew what it takes for old: a control plane that was restored counts anew."""
    told = {each["instance_id"]: int(each.get("network_version", 0)) for each in seen}
    if not any(told.values()):
        return
    with database.read() as db:
        versions = networks.cell_versions(db, cell_id)
    for instance in known:
        if told.get(instance.id, 0) > versions.get(instance.id, 0):
            with by_itself(instance.id), database.write() as db:
                row = instances.fetch(db, instance.org_id, instance.id, lock=True)
                if row.desired_status not in GONE:
                    tell_domains(db, row, told[instance.id])


def tell_domains(db: Session, instance: Instance, above: int = 0) -> None:
    """The cell is told of domains that have changed, and takes nothing any more that is older.

    Nor what has the version `above`, of which it has told.
    """
    networks.domains_changed(db, instance, above)
    start(db, apply_network, instance)


def _network(op: Operation, db: Session) -> Network:
    instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"], lock=True)
    return networks.of_instance(db, instance)
