"""The code that somebody names who creates an organization."""

from control.policy.violations import refuse, wrong
from handlers.billing import switch
from handlers.calls import SessionCall
from storage.billing import referrals


def referring(call: SessionCall, code: str | None) -> str | None:
    """The id of the organization that has the code; Invalid for none, and for one's own."""
    if code is None:
        return None
    switch.prices(call)
    org_id = referrals.referring(call.db, code)
    if org_id is None:
        refuse([wrong("referral_code", "enum", "no organization has this referral code")])
    elif referrals.is_member(call.db, org_id, call.caller.user.id):
        message = "this is the code of an organization that you are a member of"
        refuse([wrong("referral_code", "self_referral", message)])
    return org_id


def refer(call: SessionCall, org_id: str | None, referred_org_id: str) -> None:
    if org_id is not None:
        referrals.create(call.db, org_id, referred_org_id)
