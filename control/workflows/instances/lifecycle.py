"""Provision and pause: from what was asked of an instance to what its cell made of it."""

from collections.abc import Callable

from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.cells.client import CellClient, CellUnavailable
from control.work import Again, GiveUp, Operation, workflow
from control.workflows.instances.subjects import (
    call,
    load,
    publish,
    publish_failed,
    publish_ready,
    record,
    specification,
    tell,
)
from storage.database import now
from storage.instances import instances
from storage.instances.instances import GONE, Instance


def provisioning_failed(op: Operation, db: Session, reason: str) -> None:
    instance = load(op, db)
    if instance.status in {"requested", "provisioning"}:
        instance.became_failed(f"provisioning failed: {reason}")
        publish_failed(db, instance, "provision", reason)


@workflow("instances.provision", deadline_s=600, on_failure=provisioning_failed)
def provision(op: Operation) -> None:
    def begin(db: Session) -> str | None:
        instance = load(op, db)
        if instance.status == "requested":
            instance.provisioning()
        return instance.branch_of

    source_id = op.step_in_transaction("begin", begin)
    snapshot = None if source_id is None else op.step("copy", lambda: _copy(op, source_id))
    call(op, "put", "provisioning", put(op, snapshot))
    observed = call(op, "usable", "provisioning", usable)
    record(op, "provisioning", lambda db, instance: became_ready(db, instance, observed))


def became_ready(db: Session, instance: Instance, observed: Answer | None) -> None:
    """It is usable for the first time; `observed` is what its cell says of it."""
    assert observed is not None
    instance.became_running(now(db))
    instance.port = observed.get("port") or instance.port
    instance.credentials_generation = observed["credentials"]["generation"]
    publish_ready(db, instance)


def pausing_failed(op: Operation, db: Session, reason: str) -> None:
    instance = load(op, db)
    if instance.status == "pausing":
        instance.became_running(now(db))
        instance.status_reason = f"pausing failed: {reason}"
        publish_failed(db, instance, "pause", reason)


@workflow("instances.pause", deadline_s=300, on_failure=pausing_failed)
def pause(op: Operation) -> None:
    def paused(db: Session, instance: Instance) -> None:
        instance.became_paused("user")
        publish(db, instance, "instance.paused.v1", paused_by="user")

    call(op, "pause", "pausing", lambda cell, *to, **stamp: cell.pause(*to, **stamp))
    record(op, "pausing", paused)


def _copy(op: Operation, source_id: str) -> str | None:
    """The snapshot of its source that a branch begins with; None once nobody wants the branch."""
    with op.database.read() as db:
        branch = instances.fetch(db, op.args["org_id"], op.args["instance_id"])
        if branch.status != "provisioning":
            return None
        source = instances.fetch(db, op.args["org_id"], source_id)
        if source.desired_status in GONE:
            raise GiveUp(f"the source instance is {source.status}")
        cell = op.services.cells.for_instance(db, source)
    try:
        made = cell.snapshot(source_id, "branch", key=op.key("copy"), lease=op.lease)
    except CellUnavailable as error:
        tell(op, "provisioning", f"its source cannot be copied yet: {error.detail}")
        raise
    return f"{source_id}/{made['snapshot_id']}"


def put(
    op: Operation,
    source_snapshot: str | None = None,
    source_backup: str | None = None,
    source_at: str | None = None,
) -> Callable[..., Answer]:
    """Declares the instance to its cell as the record wants it now."""

    def declare(cell: CellClient, instance_id: str, *, key: str, lease: int) -> Answer:
        with op.database.read() as db:
            instance = instances.fetch(db, op.args["org_id"], instance_id)
            wanted = specification(db, op.services, instance)
        wanted |= {"source_snapshot": source_snapshot, "source_backup": source_backup}
        wanted |= {"source_at": source_at}
        return cell.put(instance_id, wanted, key=key, lease=lease)

    return declare


def put_what_was_kept(op: Operation) -> Callable[..., Answer]:
    """Declares the instance where its data is; what is lost does not come back empty."""
    declare = put(op)

    def check_and_declare(cell: CellClient, instance_id: str, *, key: str, lease: int) -> Answer:
        observed = cell.observe(instance_id)
        if observed is None or observed["status"] == "erased":
            raise GiveUp("the cell no longer has the instance")
        return declare(cell, instance_id, key=key, lease=lease)

    return check_and_declare


def usable(cell: CellClient, instance_id: str, *, key: str, lease: int) -> Answer:  # noqa: ARG001 - called like an act, and asks only
    """Wait until the cell says that a login works; an instance gone to sleep since is fine."""
    observed = cell.observe(instance_id)
    if observed is None:
        raise GiveUp("the cell no longer has the instance")
    if observed["status"] == "failed":
        raise GiveUp(observed.get("status_reason") or "the engine does not start")
    if observed["status"] not in {"running", "paused"}:
        raise Again(1)
    return observed
