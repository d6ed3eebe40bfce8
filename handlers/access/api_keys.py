"""API keys: how programs come in."""

from datetime import datetime
from typing import Any

from control.access import role_holders
from control.boundary import identity
from control.policy import org_policy, quotas
from control.policy.plans import PLANS
from control.policy.violations import refuse
from handlers import instants, paging
from handlers.access import reach, views
from handlers.calls import OrgCall
from specserver import Forbidden, Reply
from storage import identifiers
from storage.access import api_keys
from storage.access.api_keys import ApiKey
from storage.errors import StateConflict

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    found = api_keys.page(
        call.db, call.org.id, now=call.now, limit=limit, after=paging.after(call, cursor)
    )
    return paging.page(call, found, views.api_key)


def create(call: OrgCall, body: Body) -> Reply:
    expires_at = expiry(call, body.get("expires_at"))
    _check_grant(call, body["role"], body.get("scopes"))
    held = api_keys.count(call.db, call.org.id, now=call.now)
    refuse(quotas.check_one_more_api_key(PLANS[call.org.plan], held))
    token = identity.new_api_key()
    key = record(call, body, token, expires_at)
    call.db.add(key)
    call.db.flush()
    call.audit(target=key.id, detail={"name": key.name, "role": key.role, "scopes": key.scopes})
    return Reply.created({**views.api_key(key), "key": token.secret})


def revoke(call: OrgCall, api_key: ApiKey) -> Reply:
    _check_reach(call, api_key)
    api_key.revoke(call.now)
    others = api_keys.revoke_created_with(call.db, api_key, call.now)
    call.audit(
        target=api_key.id, detail={"name": api_key.name, "created_with_it_and_revoked": others}
    )
    return Reply.no_content()


def unsuspend(call: OrgCall, api_key: ApiKey) -> Body:
    _check_reach(call, api_key)
    if api_key.suspended_at is None:
        raise StateConflict("this API key is not suspended")
    call.audit(
        target=api_key.id,
        detail={"name": api_key.name, "was_suspended_for": api_key.suspended_reason},
    )
    api_key.suspended_at = api_key.suspended_reason = None
    return views.api_key(api_key)


def record(call: OrgCall, body: Body, token: identity.Token, expires_at: datetime | None) -> ApiKey:
    return ApiKey(
        id=identifiers.new("key_"),
        org_id=call.org.id,
        name=body["name"],
        role=body["role"],
        scopes=body.get("scopes"),
        created_by=call.caller.user.id,
        created_by_key_id=call.caller.key.id if call.caller.key else None,
        service_account_id=call.caller.key.service_account_id if call.caller.key else None,
        prefix=token.prefix,
        token_hash=token.sha256,
        expires_at=expires_at,
    )


def expiry(call: OrgCall, text: str | None) -> datetime | None:
    """When a key that is created now is to expire, as the body has it."""
    expires_at = None if text is None else instants.read(text, pointer="/expires_at")
    if expires_at is not None and expires_at <= call.now:
        raise instants.refused("must be in the future", keyword="future", pointer="/expires_at")
    _check_life(call, expires_at)
    refuse(org_policy.check_key_life(expires_at, call.org.api_key_max_age_s, call.now))
    return expires_at


def _check_grant(call: OrgCall, role: str, scopes: list[str] | None) -> None:
    """Nobody gives what they do not have, and so nobody raises themselves by a key."""
    beyond = sorted(reach.sets_of(call).granted(role, scopes) - call.caller.rights.anywhere)
    if beyond:
        raise Forbidden(f"the key would have permissions that you do not have: {', '.join(beyond)}")


def _check_life(call: OrgCall, expires_at: datetime | None) -> None:
    """A key that ends makes none that outlives it: a leaked one could stay for good that way."""
    made_by = call.caller.key
    if made_by is None or made_by.expires_at is None:
        return
    if expires_at is None or expires_at > made_by.expires_at:
        limit = instants.timestamp(made_by.expires_at)
        message = f"must be {limit} or earlier, which is when your own key expires"
        raise instants.refused(message, keyword="maximum", pointer="/expires_at")


def _check_reach(call: OrgCall, key: ApiKey) -> None:
    """Whose keys one changes: one's own, and those with no more rights than one has.

    A key's own are itself and those created with it, not all of the person's: a weak one that
    leaked could end the strong ones.
    """
    caller = call.caller
    if caller.key is None:
        mine = key.created_by == caller.user.id
    else:
        mine = caller.key.id in (key.id, key.created_by_key_id)
    beyond = _beyond(call, key)
    if beyond and not mine:
        raise Forbidden(
            f"the key has permissions that you do not have: {', '.join(sorted(beyond))}"
        )


def _beyond(call: OrgCall, key: ApiKey) -> frozenset[str]:
    """What the key can do that the caller cannot: by name, or where its owner has it."""
    own, granted = call.caller.rights, reach.sets_of(call).granted(key.role, key.scopes)
    owner = role_holders.of_member(call.db, call.org.id, key.created_by)
    elsewhere = owner.left_to(key).beyond(own) if owner is not None else frozenset()
    return (granted - own.anywhere) | elsewhere
