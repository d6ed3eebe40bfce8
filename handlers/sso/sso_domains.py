"""Handlers of the tag SSO domains: whose addresses sign in by the organization's provider."""

from typing import Any

from control.boundary import AuditedChanges
from control.policy import quotas
from control.policy import sso_domains as rules
from control.policy.violations import refuse
from control.workflows.sso import domains as checks
from handlers import paging
from handlers.calls import OrgCall
from handlers.sso.domain_views import sso_domain as view
from specserver import Conflict, Reply
from storage import identifiers
from storage.access import memberships
from storage.sso import connections, domains
from storage.sso.domains import SsoDomain

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    return paging.page(call, domains.page(call.db, call.org.id, limit=limit, after=after), view)


def create(call: OrgCall, body: Body) -> Reply:
    name = rules.normal_domain(body["domain"])
    refuse(rules.check_domain(name))
    refuse(quotas.check_one_more_sso_domain(domains.count(call.db, call.org.id)))
    if connection_id := body.get("connection_id"):
        connections.fetch(call.db, call.org.id, connection_id)
    made = SsoDomain(
        id=identifiers.new("ssod_"),
        org_id=call.org.id,
        domain=name,
        txt_value=rules.new_txt_value(),
        connection_id=connection_id,
    )
    domains.create(call.db, made)
    call.audit(target=made.id, detail={"domain": name, "connection_id": connection_id})
    return Reply.created(view(made), f"/v1/orgs/{call.org.id}/sso/domains/{made.id}")


def update(call: OrgCall, sso_domain: SsoDomain, body: Body) -> Body:
    changes = AuditedChanges.of(sso_domain, ("connection_id", "is_enforced"))
    # Off before the connection goes, and on after it came.
    if body.get("is_enforced") is False:
        sso_domain.is_enforced = False
    if "connection_id" in body:
        _connect(call, sso_domain, body["connection_id"])
    if body.get("is_enforced"):
        _enforce(call, sso_domain)
    domains.note_enforced(call.db, call.org)
    told = {"domain": sso_domain.domain, **body}
    call.audit(target=sso_domain.id, detail=told, changes=changes)
    return view(sso_domain)


def delete(call: OrgCall, sso_domain: SsoDomain) -> Reply:
    told = {"domain": sso_domain.domain, "was_enforced": sso_domain.is_enforced}
    checks.forget_alert(call.db, call.org, sso_domain)
    call.db.delete(sso_domain)
    domains.note_enforced(call.db, call.org)
    call.audit(target=sso_domain.id, detail=told)
    return Reply.no_content()


def verify(call: OrgCall, sso_domain: SsoDomain) -> Reply:
    sso_domain.verify_again()
    call.audit(target=sso_domain.id, detail={"domain": sso_domain.domain})
    # Of the person who has owned it for longest, as look-ups of custom domains are.
    person = memberships.first_owner(call.db, call.org.id) or call.org.id
    lane = checks.lane_of(sso_domain.id)
    call.start(
        checks.verify_domain,
        lane=lane,
        org_id=call.org.id,
        domain_id=sso_domain.id,
        person=person,
    )
    return Reply.accepted(view(sso_domain))


def _connect(call: OrgCall, domain: SsoDomain, connection_id: str | None) -> None:
    """Enforced, it stays with a connection that signs people in."""
    if connection_id is None and domain.is_enforced:
        raise Conflict(
            f"single sign-on is enforced for {domain.domain}: turn that off before you take its"
            " connection away, or set another one",
            code="conflict",
        )
    if connection_id is not None:
        connection = connections.fetch(call.db, call.org.id, connection_id)
        if domain.is_enforced:
            domain.enforce(has_active_connection=connection.status == "active")
    domain.connection_id = connection_id


def _enforce(call: OrgCall, domain: SsoDomain) -> None:
    given = domain.connection_id
    connection = connections.fetch(call.db, call.org.id, given) if given else None
    domain.enforce(has_active_connection=connection is not None and connection.status == "active")
    if not domains.has_break_glass_owner(call.db, call.org):
        raise Conflict(
            "no owner could sign in if your identity provider failed: first let an owner enroll an"
            " authenticator app or a passkey, or have an owner with an address of another domain",
            code="no_break_glass",
        )
