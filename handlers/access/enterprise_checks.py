"""What may be attached to which enterprise, and how both organizations are told of it."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from control.boundary.authorization import sso_session
from control.policy import enterprises as rules
from control.policy.months import hour_of
from control.policy.plans import PLANS
from control.policy.violations import refuse
from handlers.calls import OrgCall
from specserver import Conflict, Forbidden
from storage.access import enterprises
from storage.access.enterprises import EnterpriseOrg
from storage.access.organizations import Organization
from storage.billing import payers

BREAKS: Final = "the terms are invalid in {} places"


def check_plan(call: OrgCall) -> None:
    refuse(rules.check_plan(PLANS[call.org.plan]))


def refuse_known(known: EnterpriseOrg | None) -> None:
    if known is not None:
        _refuse(known.role)


def parent(call: OrgCall) -> EnterpriseOrg:
    """The organization of the path as a parent; raises Conflict where it is none."""
    known = enterprises.find(call.db, call.org.id)
    if known is None or known.role != "parent":
        raise Conflict(
            "the organization is not the parent of an enterprise: make it one"
            " (`POST …/enterprise`)",
            code="enterprise_missing",
        )
    return known


def to_attach(call: OrgCall, org_id: str) -> Organization:
    """The organization, which the caller owns, is open and in no enterprise.

    Whether it is in one is asked before it is held: of two parents that attach each other neither
    waits for the other.
    """
    if call.caller.held_to is not None:
        raise sso_session()
    if enterprises.is_member(call.db, org_id, call.caller.user.id):
        role = enterprises.role_elsewhere(call.db, org_id)
        if role is not None:
            _refuse(role)
    org, member = enterprises.to_attach(call.db, org_id, call.caller.user.id)
    if member.role != "owner":
        detail = "only an owner of both organizations can attach one to the other"
        raise Forbidden(detail, code="owner_required")
    if org.status == "closed":
        raise Conflict("a closed organization cannot be attached", code="org_closed")
    return org


def choose_payer(call: OrgCall, known: EnterpriseOrg, body: Mapping[str, Any]) -> None:
    """Where the parent begins or ends to pay for its subsidiaries, by the full hour."""
    chosen = body.get("consolidated_invoice", known.consolidated_invoice)
    if chosen == known.consolidated_invoice:
        return
    # Held: whoever is detached at the same time would be paid for without end.
    ids = enterprises.hold_ids(call.db, known.org_id)
    if chosen:
        payers.begin(call.db, ids, known.org_id, hour_of(call.now))
    else:
        end_paying(call, ids)


def begin_paying(call: OrgCall, known: EnterpriseOrg, org_id: str) -> None:
    if known.consolidated_invoice:
        payers.begin(call.db, [org_id], known.org_id, hour_of(call.now))


def end_paying(call: OrgCall, org_ids: Collection[str]) -> None:
    payers.end(call.db, org_ids, hour_of(call.now))


def audit_both(call: OrgCall, subsidiary: EnterpriseOrg) -> None:
    """In the logs of both organizations."""
    call.audit(target=subsidiary.org_id)
    is_parent = call.org.id == subsidiary.parent_id
    other = subsidiary.org_id if is_parent else str(subsidiary.parent_id)
    enterprises.audit_elsewhere(
        call.db,
        other,
        str(call.rule.audit),
        user_id=call.caller.user.id,
        target=subsidiary.org_id,
        request_id=call.request_id,
    )


def _refuse(role: str) -> None:
    if role == "parent":
        raise Conflict(
            "the organization is the parent of an enterprise already", code="enterprise_parent"
        )
    raise Conflict(
        "the organization is a subsidiary of an enterprise: detach it first",
        code="enterprise_subsidiary",
    )
