"""Domains: looked up in the DNS, and told to the cell once they lead to the instance.

What the cell tells of their certificates is noted too, for their owners to read.
"""

from collections.abc import Sequence
from typing import Any, Final, TypedDict

import structlog
from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer, Observations
from control.events import raise_
from control.policy.alert_kinds import DOMAIN
from control.work import Operation, workflow
from control.work.shared_steps import step_for_all
from control.workflows.instances.fault_isolation import isolated
from control.workflows.network.dns import Found, LookupFailed
from control.workflows.network.networks import tell_domains
from storage.database import Database, now
from storage.errors import RecordNotFound
from storage.instances import instances
from storage.instances.instances import GONE, Instance
from storage.network import domains
from storage.network.domains import Domain

TRIES: Final = 3
AT_ONCE: Final = 50
"""As many names are looked up at once; each has a socket meanwhile."""
Arguments = dict[str, Any]
CERTIFICATE: Final = ("issued_by", "not_after", "status", "status_reason", "retry_at")
_log = structlog.get_logger("domains")


class Looked(TypedDict):
    """What the DNS has answered: where a name leads, or why there was no answer."""

    targets: list[str]
    failed: str | None


@workflow("domains.verify", deadline_s=120, joins=True, asks_strangers=True)
def verify_domain(op: Operation) -> None:
    # An owner's look-ups take one turn of a thread, as name servers that do not answer cost one
    # each; else a good name would wait for minutes behind all names of such servers.
    asked = step_for_all(
        op, f"look {op.attempts}", lambda all_args: _look(op, all_args), limit=AT_ONCE - 1
    )
    if asked["failed"] is not None and op.attempts < TRIES:
        raise LookupFailed(asked["failed"])
    op.step_in_transaction("record", lambda db: _record(op, db, asked))


def _look(op: Operation, all_args: Sequence[Arguments]) -> list[Looked]:
    """What the DNS answers to the names of all of these operations, asked at once."""
    with op.database.read() as db:
        domains_asked = [_load(db, args) for args in all_args]
    hostnames = [domain.hostname if domain else "" for domain in domains_asked]
    found = op.services.resolver.cnames({name for name in hostnames if name})
    return [_looked(found.get(name)) for name in hostnames]


def _looked(found: Found | LookupFailed | None) -> Looked:
    """As a step's result; there is nothing to look for where a domain was removed."""
    if isinstance(found, LookupFailed):
        return {"targets": [], "failed": found.detail}
    return {"targets": list(found.targets) if found else [], "failed": None}


def _unverified(domain: Domain, asked: Looked) -> str | None:
    """None where the name leads to the instance, else why it does not."""
    if asked["failed"] is not None:
        _log.warning("domain look-up failed", domain_id=domain.id, error=asked["failed"])
        return f"DNS did not answer for {domain.hostname}; try to verify it again later"
    if domain.cname_target in asked["targets"]:
        return None
    create = f"create this DNS record: {domain.hostname} CNAME {domain.cname_target}"
    # Not what was found instead: the resolver may know the names of the operator's own network.
    return f"{domain.hostname} has no CNAME record that leads to this instance; {create}"


def _record(op: Operation, db: Session, asked: Looked) -> None:
    domain = _load(db, op.args, lock=True)
    if domain is None:
        return
    reason = _unverified(domain, asked)
    instance = instances.fetch(db, domain.org_id, domain.instance_id)
    was_verified = domain.status == "verified"
    if reason is not None:
        domain.became_failed(reason, now(db))
        if was_verified:
            _tell_of_loss(db, instance, domain, "warning")
    else:
        other = domains.holder(db, domain.hostname)
        if other is not None and other.id != domain.id:
            _take_from(db, other, "info" if other.org_id == domain.org_id else "warning")
        domain.became_verified(now(db))
    if was_verified != (domain.status == "verified"):
        tell_domains(db, instance)


def _take_from(db: Session, other: Domain, severity: str) -> None:
    """The DNS says that the name has moved on; whoever it led to before loses it."""
    moved = f"the CNAME record of {other.hostname} now points to another instance"
    other.became_failed(moved, now(db))
    db.flush()
    loser = instances.fetch(db, other.org_id, other.instance_id)
    _tell_of_loss(db, loser, other, severity)
    tell_domains(db, loser)


def _tell_of_loss(db: Session, instance: Instance, domain: Domain, severity: str) -> None:
    title, reason = f"{domain.hostname} no longer leads to {{name}}", str(domain.status_reason)
    raise_(db, instance, DOMAIN, severity, title, reason, cause=domain.id)


def _load(db: Session, args: Arguments, *, lock: bool = False) -> Domain | None:
    """None once it was removed, or its instance was; `lock` is of the instance's row."""
    try:
        instance = instances.fetch(db, args["org_id"], args["instance_id"], lock=lock)
        if instance.desired_status in GONE:
            return None
        return domains.fetch(db, instance, args["domain_id"])
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
        with isolated(each["instance_id"]):
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
        with isolated(read.instance_id, domain_id=read.id), database.write() as db:
            domain = db.get(Domain, read.id, with_for_update=True)
            if domain is not None and domain.status == "verified":
                domain.certificate = told.get((domain.instance_id, domain.hostname))
