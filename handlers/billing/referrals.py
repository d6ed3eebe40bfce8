"""Referrals: an organization's code, and what came of it."""

from typing import Any

from control.policy.credits import REFERRAL_CENTS
from handlers import paging
from handlers.billing import credit_views as views
from handlers.billing import switch
from handlers.calls import OrgCall
from handlers.instants import timestamp
from specserver import Reply
from storage.billing import credit_ledger, referrals

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    currency = switch.prices(call).currency
    held = referrals.code_of(call.db, call.org.id)
    after = paging.after(call, cursor)
    found = referrals.page(call.db, call.org.id, limit=limit, after=after)
    return {
        "referral_code": None if held is None else held.code,
        "reward_cents": REFERRAL_CENTS,
        "credited_cents": credit_ledger.granted(call.db, call.org.id, "referral"),
        "currency": currency,
        **paging.page(call, found, views.referral),
    }


def create(call: OrgCall) -> Reply:
    """The organization is held until the commit, so that no other request makes a second one."""
    currency = switch.prices(call).currency
    held = referrals.code_of(call.db, call.org.id)
    made = held or referrals.create_code(call.db, call.org.id, call.caller.id)
    call.audit(target=call.org.id, detail={"is_new": held is None})
    worth = {"reward_cents": REFERRAL_CENTS, "currency": currency}
    return Reply.created(
        {"referral_code": made.code, **worth, "created_at": timestamp(made.created_at)}
    )
