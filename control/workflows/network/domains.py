"""Domains: looked up in the DNS, and told to the cell once they lead to the instance.

What the cell tells of their certificates is noted too, for their owners to read.
"""

from typing import Final

import structlog
from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer, Observations
from control.work import Operation, workflow
from control.workflows.instances.apart import by_itself
from control.workflows.network.dns import LookupFailed
from control.workflows.network.networks import tell_domains
from storage.database import Database, now
from storage.errors import RecordNotFound
from storage.instances import instances
from storage.instances.instances import GONE
from storage.network import domains
from storage.network.domains import Domain

TRIES: Final = 3
CERTIFICATE: Final = ("issued_by", "not_after", "status", "status_reason", "retry_at")
_log = structlog.get_logger("domains")


@workflow("domains.verify", deadline_s=120, joins=True, asks_strangers=True)
def verify_domain(op: Operation) -> None:
    reason = op.step("look", lambda: _look(op))
    op.step_in_transaction("record", lambda db: _record(op, db, reason))


def _look(op: Operation) -> str | None:
    """None where the name leads to the instance, else why it does not."""
    with op.database.read() as db:
        domain = _load(op, db)
    if domain is None:
        return None
    create = f"create this DNS record: {domain.hostname} CNAME {domain.cname_target}"
    try:
        found = op.services.resolver.cname(domain.hostname)
    except LookupFailed as error:
        if op.attempts < TRIES:
            raise
        _log.warning("domain look-up failed", domain_id=domain.id, error=error.detail)
        return f"DNS did not answer for {domain.hostname}; try to verify it again later"
    if domain.cname_target in found.targets:
        return None
    # Not what was found instead: the resolver may know the names of the operator's own network.
    return f"{domain.hostname} has no CNAME record that leads to this instance; {create}"


def _record(op: Operation, db: Session, reason: str | None) -> None:
    domain = _load(op, db, lock=True)
    if domain is None:
        return
    instance = instances.fetch(db, domain.org_id, domain.instance_id)
    was_verified = domain.status == "verified"
    if reason is not None:
        domain.became_failed(reason, now(db))
    else:
        other = domains.holder(db, domain.hostname)
        if other is not None and other.id != domain.id:
            _take_from(db, other)
        domain.became_verified(now(db))
    if was_verified != (domain.status == "verified"):
        tell_domains(db, instance)


def _take_from(db: Session, other: Domain) -> None:
    """The DNS says that the name has moved on; whoever it led to before loses it."""
    moved = f"the CNAME record of {other.hostname} now points to another instance"
    other.became_failed(moved, now(db))
    db.flush()
    tell_domains(db, instances.fetch(db, other.org_id, other.instance_id))


def _load(op: Operation, db: Session, *, lock: bool = False) -> Domain | None:
    """None once it was removed, or its instance was; `lock` is of the instance's row."""
    try:
        instance = instances.fetch(db, op.args["org_id"], op.args["instance_id"], lock=lock)
        if instance.desired_status in GONE:
            return None
        return domains.fetch(db, instance, op.args["domain_id"])
    except RecordNotFound:
        return None


def _certificate(told: Answer) -> dict[str, str | None]:
    """What is kept and shown of one: texts, whatever else its cell says."""
    if not all(isinstance(told[name], str | None) for name in CERTIFICATE):
        raise TypeError("a certificate is told of in texts")
    return {name: told[name] for name in CERTIFICATE}


def note_certificates(database: Database, cell_id: str, seen: Observations) -> None:
    """Bring the records to what the cell observes; cheap where nothing differs."""
    told: dict[tuple[str, str], dict[str, str | None]] = {}
    for each in seen:
        with by_itself(each["instance_id"]):
            # Absent from what an earlier version of a cell tells.
            for one in each.get("domains", ()):
                told[each["instance_id"], one["hostname"]] = _certificate(one["certificate"])
    with database.read() as db:
        differing = [
            domain
            for domain in domains.verified_of_cell(db, cell_id)
            if domain.instance_id not in seen.unread
            and domain.certificate != told.get((domain.instance_id, domain.hostname))
        ]
    for read in differing:
        with by_itself(read.instance_id, domain_id=read.id), database.write() as db:
            domain = db.get(Domain, read.id, with_for_update=True)
            if domain is not None and domain.status == "verified":
                domain.certificate = told.get((domain.instance_id, domain.hostname))
