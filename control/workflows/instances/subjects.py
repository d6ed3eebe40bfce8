"""What every workflow on an instance needs: the instance, its cell, and the cell's view of it."""

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from control import events
from control.cells.answer_checks import Answer
from control.cells.client import CellUnavailable
from control.policy import backups, recovery
from control.policy.plans import PLANS
from control.policy.sizes import SIZES
from control.services import Services
from control.work import Operation
from storage.access import memberships, organizations
from storage.data import backup_settings
from storage.instances import instances
from storage.instances.instances import Instance
from storage.network import domains, networks
from storage.network.networks import Network


def load(op: Operation, db: Session) -> Instance:
    """The operation's instance, its row held until the transaction ends."""
    return instances.fetch(db, op.args["org_id"], op.args["instance_id"], lock=True)


def call(op: Operation, name: str, status: str, act: Callable[..., Answer]) -> Answer | None:
    """A step that asks the instance's cell: `act(cell, instance_id, key=…, lease=…)`.

    None once the instance has left `status`: what was asked later (a delete) is not held up.
    """

    def ask() -> Answer | None:
        with op.database.read() as db:
            instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"])
            if instance.status != status:
                return None
            cell = op.services.cells.for_instance(db, instance)
        try:
            return act(cell, instance.id, key=op.key(name), lease=op.lease)
        except CellUnavailable as error:
            tell(op, status, error.detail)
            raise

    answer: Answer | None = op.step(name, ask)
    return answer


def tell(op: Operation, status: str, reason: str) -> None:
    """The owner hears what holds the instance up, while it is tried again."""
    with op.database.write() as db:
        instance = load(op, db)
        if instance.status == status:
            instance.is_held_up(reason)


def record(
    op: Operation, status: str, act: Callable[[Session, Instance], None], name: str = "record"
) -> None:
    """Do `act` once, in one transaction with the step's note, if the instance is still `status`."""

    def transition(db: Session) -> None:
        instance = load(op, db)
        if instance.status == status:
            act(db, instance)

    op.step_in_transaction(name, transition)


def publish(db: Session, instance: Instance, kind: str, /, **data: Any) -> None:
    """Tell of a change of the instance, in the transaction that made it."""
    events.publish(db, instance.org_id, kind, {"instance_id": instance.id, **data}, instance)


def publish_ready(db: Session, instance: Instance) -> None:
    publish(
        db,
        instance,
        "instance.ready.v1",
        engine=instance.engine,
        version=instance.engine_version,
        size=instance.size,
        region=instance.region,
        placement=instance.placement,
        host=instance.host,
        port=instance.port,
    )


def publish_failed(db: Session, instance: Instance, operation: str, reason: str) -> None:
    """`status` says what became of the instance: it may run on although an operation failed."""
    publish(
        db,
        instance,
        "instance.failed.v1",
        operation=operation,
        reason=reason,
        status=instance.status,
    )


def size_of(instance: Instance) -> dict[str, Any]:
    """The figures the cell holds the instance to; storage is what was ordered of the ceiling."""
    size = SIZES[instance.size]
    return {
        "name": size.name,
        "vcpu": size.vcpu,
        "memory_bytes": size.memory_bytes,
        "storage_bytes": instance.storage_bytes,
        "connections_max": size.connections_max,
    }


def specification(db: Session, services: Services, instance: Instance) -> dict[str, Any]:
    """All that a cell must know to run the instance."""
    plan = PLANS[organizations.fetch(db, instance.org_id).plan]
    owner = memberships.first_owner(db, instance.org_id)
    chosen = backup_settings.of_instance(db, instance)
    return {
        "engine": instance.engine,
        "engine_version": instance.engine_version,
        "size": size_of(instance),
        "host": instance.host,
        "idle_pause_s": services.settings.idle_pause_s if plan.pauses_when_idle else None,
        "rotation_overlap_s": services.settings.rotation_overlap_s,
        **network_settings(db, instance, networks.of_instance(db, instance)),
        "source_snapshot": None,
        "source_backup": None,
        "source_at": None,
        "continuous_archiving": recovery.is_archived(
            plan, instance.engine, chosen.continuous_archiving
        ),
        # A cell of an earlier version knows no copies.
        **({"backups_copied": True} if backups.is_copied(plan, chosen.copy_target) else {}),
        # A cell need not know which organization it is, nor whose.
        "tenant": _opaque(instance.org_id),
        "person": "" if owner is None else _opaque(owner),
    }


def network_settings(db: Session, instance: Instance, network: Network) -> dict[str, Any]:
    """Who can connect, and by which domains: these are read after the version, so are no older."""
    return {
        "network_version": network.cell_version,
        "allow_cidrs": network.allow_cidrs,
        "client_ca_pem": network.client_ca_pem,
        "domains": domains.verified_hostnames(db, instance),
    }


def _opaque(id_: str) -> str:
    return hashlib.sha256(id_.encode()).hexdigest()[:32]


def rfc3339(moment: datetime) -> str:
    """As every document of ours writes a moment: UTC, in milliseconds."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
