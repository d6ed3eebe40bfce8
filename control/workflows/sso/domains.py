"""SSO domains: their TXT records are looked up when somebody asks, and every day from then on.

A record that is gone ends nothing at once: somebody may be mending the zone. Owners are told on the
first day, and after a week the domain is verified no more. So a domain that was sold is free for
its new owner, and its people are not held to a provider that is none of theirs. A DNS that does not
answer says nothing about the record, and ends nothing.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, TypedDict

import structlog
from sqlalchemy.orm import Session

from control.events import raise_, resolve
from control.mail import sso_letters
from control.policy.alert_kinds import SSO_DOMAIN
from control.policy.sso_domains import txt_name
from control.services import Services
from control.work import Operation, Schedule, enqueue, workflow
from control.work.shared_steps import step_for_all
from control.workflows.access import mail
from control.workflows.network.dns import LookupFailed, Texts
from storage.access import memberships, organizations
from storage.access.organizations import Organization
from storage.database import now
from storage.errors import RecordNotFound
from storage.events import audit
from storage.sso import domains
from storage.sso.domains import SsoDomain

TRIES: Final = 3
AT_ONCE: Final = 50
"""As many names are looked up at once; each has a socket meanwhile."""
CHECKED_EVERY: Final = timedelta(days=1)
CHECKED_MAX: Final = 1_000
"""Domains whose daily check begins in one turn of an hour."""
OWNERS_MAX: Final = 100
Arguments = dict[str, Any]
_log = structlog.get_logger("sso_domains")


class TxtAnswer(TypedDict):
    """What the DNS answered: the texts of a claim's own kind, or why there was no answer."""

    found: bool
    is_alias: bool
    failed: str | None


@workflow("sso_domains.verify", deadline_s=120, joins=True, asks_strangers=True)
def verify_domain(op: Operation) -> None:
    # As with custom domains, an owner's look-ups take one turn of a thread together.
    asked = step_for_all(
        op, f"look {op.attempts}", lambda all_args: _look(op, all_args), limit=AT_ONCE - 1
    )
    if asked["failed"] is not None and op.attempts < TRIES:
        raise LookupFailed(asked["failed"])
    op.step_in_transaction("record", lambda db: _record(op, db, asked))


@workflow("sso_domains.check", deadline_s=300)
def check_verified(op: Operation) -> None:
    """Have those looked up that were not for a day, each in its own lane."""
    op.step_in_transaction("start", _start_checks)


def lane_of(domain_id: str) -> str:
    return f"sso_domain:{domain_id}"


def forget_alert(db: Session, org: Organization, domain: SsoDomain) -> None:
    """For a claim that ends: nobody has to look after its record any more."""
    resolve(db, org, [SSO_DOMAIN], cause=domain.id)


def _start_checks(db: Session) -> None:
    for org_id, domain_id in domains.due(db, now(db) - CHECKED_EVERY, CHECKED_MAX):
        args = {"org_id": org_id, "domain_id": domain_id, "person": org_id}
        enqueue(db, verify_domain, lane_of(domain_id), args)


def _look(op: Operation, all_args: Sequence[Arguments]) -> list[TxtAnswer]:
    """What the DNS answers to the names of all of these operations, asked at once."""
    ids = [args["domain_id"] for args in all_args]
    with op.database.read() as db:
        wanted = {one.id: (one.domain, one.txt_value) for one in domains.load(db, ids).values()}
    found = op.services.resolver.texts({txt_name(domain) for domain, _ in wanted.values()})
    return [_looked(found, *wanted.get(one, ("", ""))) for one in ids]


def _looked(found: dict[str, Texts | LookupFailed], domain: str, value: str) -> TxtAnswer:
    """As a step's result; there is nothing to look for where a claim was given up."""
    answer = found.get(txt_name(domain), Texts())
    if isinstance(answer, LookupFailed):
        return {"found": False, "is_alias": False, "failed": answer.detail}
    is_found = any(each.strip() == value for each in answer.values)
    return {"found": is_found, "is_alias": answer.is_alias, "failed": None}


def _record(op: Operation, db: Session, asked: TxtAnswer) -> None:
    try:
        org = organizations.fetch(db, op.args["org_id"])
        # First, as requests do, so that none waits for this one while it waits for them.
        organizations.lock(db, org.id)
        domain = domains.fetch(db, org.id, op.args["domain_id"], lock=True)
    except RecordNotFound:
        return
    at = now(db)
    if asked["failed"] is not None:
        _log.warning("domain look-up failed", domain_id=domain.id, error=asked["failed"])
        reason = f"DNS did not answer for {txt_name(domain.domain)}; verify it again later"
        domain.was_not_answered(reason, at)
    elif not asked["found"]:
        _missed(op.services, db, org, domain, asked)
    elif _is_anothers(db, domain):
        domain.was_missed(_ANOTHERS.format(domain.domain), at)
    else:
        domain.was_found(at)
        forget_alert(db, org, domain)


def _is_anothers(db: Session, domain: SsoDomain) -> bool:
    """Whoever else has it verified keeps it until its own record is gone for a week."""
    holder = domains.holder(db, domain.domain, lock=True)
    return holder is not None and holder.id != domain.id


_ANOTHERS: Final = (
    "your TXT record is there, but another organization has {} verified: keep the record, and"
    " verify it again once that organization has released the domain, or its own record has been"
    " missing for 7 days"
)


def _missed(
    services: Services, db: Session, org: Organization, domain: SsoDomain, asked: TxtAnswer
) -> None:
    was_enforced = domain.is_enforced
    if domain.was_missed(_reason(domain, is_alias=asked["is_alias"]), now(db)):
        domains.note_enforced(db, org)
        told = {"domain": domain.domain, "enforced": was_enforced}
        audit.append(
            db, org.id, "sso_domain.lapse", actor_kind="system", target=domain.id, detail=told
        )
        forget_alert(db, org, domain)
        _tell_owners(services, db, org, domain)
    elif domain.verified_at is not None:
        title = f"the TXT record of the domain {domain.domain} is missing"
        raise_(db, org, SSO_DOMAIN, "critical", title, _AT_RISK, cause=domain.id)


_AT_RISK: Final = (
    "create it again: a domain whose record is missing for 7 days is no longer verified, and single"
    " sign-on is no longer enforced for it"
)


def _reason(domain: SsoDomain, *, is_alias: bool) -> str:
    """Not what was found instead: the resolver may know more names than all the world does."""
    name = txt_name(domain.domain)
    if is_alias:
        return f"{name} is an alias (CNAME), which is not followed: create a TXT record there"
    return f'{name} has no such TXT record; create this DNS record: {name} TXT "{domain.txt_value}"'


def _tell_owners(services: Services, db: Session, org: Organization, domain: SsoDomain) -> None:
    base_url = services.settings.base_url
    for email in memberships.addresses(db, org.id, ["owner"], OWNERS_MAX):
        letter = sso_letters.domain_lapsed(
            to=email, org=org.name, domain=domain.domain, base_url=base_url
        )
        mail.notify(db, services.sealer, letter, org.id)


SCHEDULE: Final = Schedule("sso_domains", check_verified, every_s=3_600)
