"""Compliance: the business associate agreement, the MFA policy and where secure placement is."""

from typing import Any

from control.policy.plans import PLANS, SECURE, plans_with_placement
from handlers import instants
from handlers.calls import OrgCall, OwnerCall
from specserver import Conflict, Forbidden, Reply
from storage.access import baa_signatures, memberships
from storage.access.baa_signatures import BaaSignature
from storage.catalogue import cells

Body = dict[str, Any]


def get(call: OrgCall) -> Body:
    signed = baa_signatures.latest(call.db, call.org.id)
    without = memberships.count_without_mfa(call.db, call.org.id)
    return {
        "org_id": call.org.id,
        "baa": _baa(call, signed),
        "mfa": {"required": call.org.require_mfa, "members_without_mfa": without},
        "secure_placement": _secure_placement(call, is_signed=signed is not None),
    }


def sign_baa(call: OwnerCall, body: Body) -> Reply:
    _check_signing(call, body["version"])
    current, user = call.services.settings.baa, call.caller.user
    by = {"by": user.id, "name": user.name, "email": user.email}
    signed = baa_signatures.sign(call.db, call.org.id, current.version, current.text, **by)
    call.audit(target=call.org.id, detail={"version": signed.version})
    told = {"version": signed.version, "signed_by": signed.signed_by}
    call.emit("org.baa_signed.v1", told)
    return Reply.created(_baa(call, signed))


def _check_signing(call: OrgCall, version: str) -> None:
    current = call.services.settings.baa
    if SECURE not in PLANS[call.org.plan].placements:
        needed = " or ".join(plans_with_placement(SECURE))
        detail = f"the {call.org.plan} plan does not offer secure placement, which the BAA is for"
        raise Forbidden(f"{detail}; change to the plan {needed}", code="plan_required")
    if version != current.version:
        detail = "this is not the current version of the BAA: read it again (`GET …/compliance`)"
        raise Conflict(f"{detail}, and sign {current.version}", code="baa_outdated")
    if baa_signatures.find(call.db, call.org.id, version) is not None:
        raise Conflict("this version of the BAA is signed already", code="baa_signed")


def _secure_placement(call: OrgCall, *, is_signed: bool) -> Body:
    offers = SECURE in PLANS[call.org.plan].placements
    offering = {cell.region for cell in cells.every(call.db) if cell.placement == SECURE}
    return {
        "available": offers and is_signed and bool(offering),
        "plan_offers": offers,
        "plans": plans_with_placement(SECURE),
        "baa_signed": is_signed,
        "regions": sorted(offering),
    }


def _baa(call: OrgCall, signed: BaaSignature | None) -> Body:
    current = call.services.settings.baa
    status = "unsigned"
    if signed is not None:
        status = "signed" if signed.version == current.version else "outdated"
    return {
        "status": status,
        "version": current.version,
        "date": current.date,
        "is_template": current.is_template,
        "text": current.text,
        "signature": signed and _signature(signed),
    }


def _signature(signed: BaaSignature) -> Body:
    return {
        "version": signed.version,
        "signed_by": signed.signed_by,
        "signer_name": signed.signer_name,
        "signer_email": signed.signer_email,
        "signed_at": instants.timestamp(signed.created_at),
    }
